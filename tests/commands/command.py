"""What a script's command line leaves."""


def outcome(main, capsys):
    """Run a script's ``main``: exit code, what it printed, and what it printed as errors."""
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code, out, err
