"""`skidway profile`: named brokers, so that commands need no `--bootstrap`. See `profiles` for the file."""

from typing import Annotated

import typer

from skidway.cli.output import AsJson, fail, friendly, group, misused, print_json, print_table, run
from skidway.cli.profiles import (
    NAME_VARIABLE,
    BadProfile,
    Profiles,
    Setting,
    checked,
    chosen_name,
    complete_profile,
    load_profiles,
)

app = group("Named brokers and settings, so that commands need no --bootstrap.")


Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile.", autocompletion=complete_profile)]


def _load() -> Profiles:
    try:
        return load_profiles()
    except BadProfile as error:
        fail(str(error))


@app.command("list", epilog="Example: skidway profile list")
@friendly
def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles; a star marks the one in use."""
    profiles = _load()
    chosen = chosen_name(profiles)
    if as_json:
        found = [{"name": name, "in_force": name == chosen, **one} for name, one in sorted(profiles.profiles.items())]
        print_json({"file": str(profiles.path), "profiles": found})
    elif profiles.profiles:
        rows = [
            ("*" if name == chosen else "", name, one.get("bootstrap", "-"), one.get("timeout", "-"))
            for name, one in sorted(profiles.profiles.items())
        ]
        print_table(("", "profile", "bootstrap", "timeout"), rows)
    else:
        typer.echo(f"no profiles in {profiles.path}; create one with: skidway profile set NAME -b HOST:PORT", err=True)


@app.command("set", epilog="Example: skidway profile set staging -b kafka-1.example:9092,kafka-2.example:9092")
@friendly
def set_profile(
    name: Name,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", "-b", metavar="HOST:PORT[,…]", help="Brokers to ask first.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for an answer.", min=0.1)
    ] = None,
) -> None:
    """Create or change a profile. The first one becomes the default."""
    from skidway.blocking_client.addresses import parse_bootstrap

    given: dict[str, Setting] = {}
    if bootstrap is not None:
        parse_bootstrap(bootstrap)
        given["bootstrap"] = checked("--bootstrap", "bootstrap", bootstrap)
    if timeout is not None:
        given["timeout"] = checked("--timeout", "timeout", timeout)
    if not given:
        misused("nothing to set; give --bootstrap HOST:PORT or --timeout SECONDS")
    profiles = _load()
    profiles.profiles.setdefault(name, {}).update(given)
    if profiles.default is None:
        profiles.default = name
    profiles.save()
    default = " (the default)" if profiles.default == name else ""
    typer.echo(f"profile {name}{default} is in {profiles.path}")


@app.command(epilog="Example: skidway profile use staging")
@friendly
def use(name: Name) -> None:
    """Make a profile the default."""
    profiles = _load()
    _known(profiles, name)
    profiles.default = name
    profiles.save()
    typer.echo(
        f"commands use the profile {name} from now on; SKIDWAY_PROFILE or --profile chooses another for one command"
    )


@app.command(epilog="Example: skidway profile show")
@friendly
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The profile. Default: the one in use.", autocompletion=complete_profile),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show one profile."""
    profiles = _load()
    chosen = name or chosen_name(profiles)
    if chosen is None:
        fail(f"no profile is in use; name one, or set {NAME_VARIABLE}")
    settings = _known(profiles, chosen)
    if as_json:
        print_json({"name": chosen, **settings})
        return
    print_table(("setting", "value"), sorted(settings.items()))


@app.command(epilog="Example: skidway profile delete staging")
@friendly
def delete(name: Name) -> None:
    """Delete a profile. The brokers are not changed."""
    profiles = _load()
    _known(profiles, name)
    del profiles.profiles[name]
    if profiles.default == name:
        profiles.default = None
    profiles.save()
    typer.echo(f"deleted profile {name}")


def _known(profiles: Profiles, name: str) -> dict[str, Setting]:
    try:
        return profiles.settings(name)
    except BadProfile as error:
        fail(str(error))


def main(arguments: list[str]) -> int:
    return run(app, "skidway profile", arguments, profiled=False)
