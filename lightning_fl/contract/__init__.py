"""The laws that rules, attacks, clients, partitions, data sets and models obey, as tests.

``pytest --pyargs lightning_fl.contract`` in a project with configurations of its own tests what these name, and nothing
of ours; here it tests everything in ``conf``.  The extra ``test`` has what it needs.
"""

ONLY = "LIGHTNING_FL_CONTRACT_ONLY"  # the environment's name of the one part that the tests are about
