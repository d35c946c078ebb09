"""`skidway serve`: run a broker.

argparse reads the flags, because it loads faster than Typer. Typer shows the help page and says what is wrong with the
words (`serve_page`), so that both look as they do for all other commands.
"""

from skidway.server import flags

PROGRAM = "skidway serve"
HELP = {"-h", "--help"}


def main(arguments: list[str]) -> int:
    refusal = ""
    if HELP.isdisjoint(arguments):
        try:
            parsed = flags.build_parser(PROGRAM).parse_args(arguments)
        except flags.WrongUsage as error:
            refusal = str(error)
        else:
            return flags.serve(parsed)
    from skidway.cli.help.serve_page import app
    from skidway.cli.output import EXIT_USAGE, complain, run

    code = run(app, PROGRAM, arguments)
    if refusal and not code:
        complain(refusal)
        return EXIT_USAGE
    return code
