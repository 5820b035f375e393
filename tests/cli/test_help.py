"""Help: every command says what it does, how it is called and shows it."""

import re

import click
import pytest
from support.cli import thalweg
from thalweg.main import main

from flowcore.api.kinds import IN_DUMPS, KINDS
from flowcore.questions.scenario.reading.dump_commands import DUMP_COMMAND

COMMANDS = sorted(name for name, command in main.commands.items() if not command.hidden)
WITH_INPUT = [name for name in COMMANDS if main.commands[name].params]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help(name: str, option: str) -> None:
    """A sentence of what it does, and all of its options with a text or a choice."""
    done = thalweg(name, option)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: python -m thalweg {name}")
    assert re.search(r"^  [A-Z].*\w", done.stdout, re.MULTILINE)
    for parameter in main.commands[name].params:
        if isinstance(parameter, click.Argument):
            assert parameter.make_metavar(click.Context(main)) in done.stdout
            continue
        assert isinstance(parameter, click.Option)
        assert parameter.opts[-1] in done.stdout
        assert parameter.help or isinstance(parameter.type, click.Choice)


def test_the_list_of_commands_is_whole() -> None:
    """At 80 columns no line of it ends in "..."."""
    listed = thalweg("--help", columns=80).stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == COMMANDS
    assert [line for line in listed if line.endswith("...")] == []


@pytest.mark.parametrize("name", WITH_INPUT)
def test_commands_that_take_input_show_examples(name: str) -> None:
    """Lines to copy, each with the command's own name, left as they were written."""
    text = thalweg(name, "--help").stdout
    examples = text.partition("Examples:\n")[2].partition("\n\n")[0].replace("\\\n", "").splitlines()
    assert examples
    assert all(f"thalweg {name}" in line for line in examples if line.strip())


def test_the_examples_options_exist() -> None:
    """No example uses an option that the command does not have."""
    for name in WITH_INPUT:
        known = {each for option in main.commands[name].params for each in (*option.opts, *option.secondary_opts)}
        text = (main.commands[name].help or "").partition("Examples:")[2]
        used = [
            option
            for line in text.splitlines()
            for option in re.findall(r" (--?[a-z-]+)", line.partition(f"thalweg {name}")[2])
        ]
        assert set(used) <= known | {"-A", "-o", "-f"}


@pytest.mark.parametrize("name", ["plan"])
def test_the_command_that_dumps_a_cluster_is_shown(name: str) -> None:
    """The one that messages name too, as a shell takes it."""
    text = thalweg(name, "--help").stdout
    assert DUMP_COMMAND in " ".join(text.replace("\\\n", "").split())
    assert "Exit code 2: " in text


def test_help_alone_lists_the_commands() -> None:
    """Each with its first words."""
    text = thalweg("--help").stdout
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z]", text, re.MULTILINE)


def test_a_wrong_word_is_answered_with_usage() -> None:
    """Unknown commands, options and values: exit code 2 and no traceback."""
    for words in (["pla"], ["plan", "--what"], ["plan", "-f", "-", "-o", "xml"], ["up", "--nodes", "many"]):
        done = thalweg(*words)
        assert done.returncode == 2
        assert "Usage: " in done.stderr


def test_the_version() -> None:
    """A name and a number."""
    assert re.fullmatch(r"thalweg, version \d+\.\d+\.\d+\S*\n", thalweg("--version").stdout)


def test_an_option_means_one_thing() -> None:
    """--context is the kubeconfig's, as for kubectl, wherever it is; and where a command has it, --kubeconfig is."""
    with_context = 0
    for command in main.commands.values():
        options = {name: option for option in command.params for name in option.opts}
        if (context := options.get("--context")) is None:
            continue
        with_context += 1
        assert isinstance(context, click.Option)
        assert context.help == "Context of the kubeconfig. Default: its current context."
        assert "--kubeconfig" in options
    assert with_context > 10


def test_the_help_of_dump_names_every_kind() -> None:
    """So that who makes a dump by hand knows what plans read."""
    words = set(re.findall(r"\w+", main.commands["dump"].help or ""))
    assert {kind.kind for kind in (*KINDS, *IN_DUMPS)} - words == set()
