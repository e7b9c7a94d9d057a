"""A grid without processes: what a strategy sends to a node is answered by a function."""

from collections.abc import Callable, Iterable
from itertools import count

from flwr.app import Message
from flwr.serverapp import Grid


class FakeGrid(Grid):
    """Nodes that answer at once, each by its function from a message to the contents it replies.

    Args:
        nodes: By id.  A function returns nothing, a record, an `flwr.app.Error`, or a list of these.
        order: Makes of all replies of a round those that arrive, in the order in which they do.
    """

    def __init__(self, nodes: dict[int, Callable], order: Callable[[list[Message]], list[Message]] = list):
        self.nodes, self.order = nodes, order
        self.numbers = count(1)

    def set_run(self, run):
        raise AssertionError("nobody asks")

    run = property(set_run)

    def create_message(self, *args, **kwargs):
        raise AssertionError("nobody asks")

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    push_messages = pull_messages = create_message

    def send_and_receive(self, messages: Iterable[Message], *, timeout=None) -> Iterable[Message]:
        replies = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(next(self.numbers))
            found = self.nodes[message.metadata.dst_node_id](message)
            for content in found if isinstance(found, list) else [found]:
                if content is not None:
                    replies.append(content if isinstance(content, Message) else Message(content, reply_to=message))
        return self.order(replies)
