"""The slash commands of a chat: the model, the mode, the conversation, its cost, and undo."""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gramercy.agents.base import unanswered
from gramercy.agents.compaction import compact, tokens_of
from gramercy.agents.exporting import export_json, export_markdown
from gramercy.agents.limits import about_tokens
from gramercy.errors import GramercyError, SourceError
from gramercy.gram.suggestion import did_you_mean, suggest
from gramercy.images.files.whole import write_whole
from gramercy.images.interrupts import interrupts
from gramercy.text import counted, cut_line, reason_of
from gramercy.ui.cli.agents import Talking
from gramercy.ui.cli.answers import LONGEST_LINE, cost_text
from gramercy.ui.cli.composing import edited
from gramercy.ui.cli.terminal import json_text, show, summary_line, tell
from gramercy.workbench.modes import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gramercy.ui.cli.chat import Chat

INTRODUCTION = '''\
What you type is said to the agent. @FILE adds a file, \\ at the end of a line goes on, """ begins and ends
several lines. Ctrl-C stops an answer, Ctrl-R searches what was typed before, Tab completes, Ctrl-D leaves.'''
# Conversations in a list. `gramercy sessions list` shows all.
MOST_LISTED = 20
# Messages shown when a conversation is resumed, so that the person recognizes it.
MOST_SHOWN = 2
# The limit of terminals for one sequence that sets the clipboard, before base64.
LARGEST_COPY = 74_000


class Command(NamedTuple):
    """How a command is written, what it does, and what it cannot do without."""

    usage: str
    does: str
    needs: str = ""


_ALL = (
    Command("/help", "this text"),
    Command("/model [PROVIDER/ID]", "tell which model answers, or choose another"),
    Command("/mode [MODE]", "tell how much is asked, or choose: ask, careful, edits, plan"),
    Command("/plan", "the mode in which only tools that change nothing run; again: as before"),
    Command("/undo", "take back the last message and what came of it: talk, image and files"),
    Command("/again", "take back the last message, and say it once more"),
    Command("/edit", "write a message in your editor"),
    Command("/new", "begin another conversation; the image stays as it is (also /clear)"),
    Command("/sessions [WORDS]", "list conversations, or find those with these words"),
    Command("/resume [ID|TITLE]", "go on with a conversation; without a name, the last one"),
    Command("/fork [TITLE]", "go on in a copy of this conversation"),
    Command("/rename TITLE", "give the conversation another title", "a title: /rename The slow query"),
    Command("/search WORDS", "find messages with these words", 'words: /search "slow query" index*'),
    Command("/compact", "let the model replace what was said by a summary"),
    Command("/cost", "tell what was used: tokens and dollars"),
    Command("/context", "tell how much of the model's window is used, and by what"),
    Command("/add FILE|TEXT", "lay something beside the conversation", "a file or a text: /add src/beds.py"),
    Command("/pin ID", "keep a piece of the context when newer ones come", "an id: /pin ctx-1"),
    Command("/drop ID|all", "take a piece of the context away", "an id: /drop ctx-1"),
    Command("/copy", "put the last answer into the clipboard"),
    Command("/export [FILE]", "write the conversation as Markdown, or as JSON where FILE ends in .json"),
    Command("/role [NAME]", "take a role of yours, or list them; `none` takes it away"),
    Command("/template [NAME] [WORDS]", "say a template of yours with these words, or list them"),
    Command("/tools", "list the tools of the agent"),
    Command("/quit", "leave"),
)
COMMANDS = {command.usage.partition(" ")[0]: command for command in _ALL}
ALIASES = {"/exit": "/quit", "/q": "/quit", "/clear": "/new", "/rewind": "/undo", "/?": "/help"}


def help_text() -> str:
    """Return the text of /help."""
    return "\n".join([INTRODUCTION, *(f"  {each.usage:<26}{each.does}" for each in _ALL)])


class Commands:
    """Executes the commands of one chat."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._place = chat.place
        # The mode to return to when the plan is made.
        self._before_plan = Mode.ASK
        self._does: dict[str, Callable[[str], object]] = {
            "/help": lambda _: click.echo(help_text()),
            "/model": self._model,
            "/mode": self._mode,
            "/plan": lambda _: self._plan(),
            "/undo": lambda _: self._undo(),
            "/again": self._again,
            "/edit": self._edit,
            "/new": self._new,
            "/sessions": self._sessions,
            "/resume": self._resume,
            "/fork": self._fork,
            "/rename": self._rename,
            "/search": self._search,
            "/compact": self._compact,
            "/cost": self._cost,
            "/context": self._context,
            "/add": self._add,
            "/pin": self._pin,
            "/drop": self._drop,
            "/copy": self._copy,
            "/export": self._export,
            "/role": self._role,
            "/template": self._template,
            "/tools": self._tools,
        }

    def do(self, entry: str) -> bool:
        """Execute a command. Return whether to go on. A failure is shown, never raised."""
        word, _, rest = entry.strip().partition(" ")
        word, rest = ALIASES.get(word, word), rest.strip()
        if word == "/quit":
            return False
        try:
            if word not in COMMANDS:
                raise SourceError(_unknown(word))
            if COMMANDS[word].needs and not rest:
                raise SourceError(f"{word} needs {COMMANDS[word].needs}")
            self._does[word](rest)
        except GramercyError as error:
            self._chat.fail(error)
        return True

    def words(self, command: str) -> Sequence[str]:
        """Return the words that may follow a command, for the Tab key."""
        if command == "/mode":
            return [mode.value for mode in Mode]
        if command in ("/role", "/template"):
            return [*_own_files(f"{command[1:]}s"), *(["none"] if command == "/role" else [])]
        if command == "/resume":
            return [each.id for each in self._place.sessions.sessions(project=self._place.project, most=50)]
        return self._models() if command == "/model" else []

    def _models(self) -> list[str]:
        from gramercy.providers.opening import provider_names

        known = {str(self._place.model), str(self._chat.first_model)}
        known |= {f"{name}/" for name in provider_names()}
        known |= {each.model for each in self._place.sessions.sessions(most=200) if each.model}
        return sorted(known)

    def _model(self, name: str) -> None:
        if name:
            self._place.use_model(name)
        tell(f"{self._place.model} answers")

    def _mode(self, name: str) -> None:
        if name and name not in [mode.value for mode in Mode]:
            hint = did_you_mean(name, [mode.value for mode in Mode], "there are " + ", ".join(Mode))
            raise SourceError(f"there is no mode {name!r:.40}: {hint}")
        if name:
            self._place.use_mode(Mode(name))
        tell(f"{self._place.mode.value}: {self._place.mode.does}")

    def _plan(self) -> None:
        if self._place.mode is Mode.PLAN:
            self._mode(self._before_plan.value)
        else:
            self._before_plan = self._place.mode
            self._mode(Mode.PLAN.value)

    def _undo(self) -> str | None:
        """Undo the last message. Return it, so that it can be sent again."""
        talk = self._chat.talk
        said = talk.conversation
        with interrupts() as pressed:
            taken = talk.take_back()
            if taken is None:
                raise SourceError("there is nothing to take back")
            asked = max((n for n, each in enumerate(said) if each.role == "user"), default=len(said))
            told = self._chat.rewinding.back(len(talk.kept), said[asked:], taken.states)
        if pressed.is_set():
            told.append("Ctrl-C came in the middle of it: it was brought to its end")
        self._chat.context.tell_again()
        typed = self._chat.typed.pop(len(talk.kept), taken.text)
        tell("\n".join([f"taken back: {cut_line(typed, LONGEST_LINE)}", *told]))
        return typed

    def _again(self, _: str) -> None:
        message = self._undo()
        if message is not None:
            self._chat.say(message)

    def _edit(self, rest: str) -> None:
        message = edited(rest)
        if message is None:
            tell("nothing was saved, so nothing is said")
            return
        show(message, dim=True)
        self._chat.say(message)

    def _new(self, _: str) -> None:
        self._chat.begin()
        tell("a new conversation" + ("; the image stays as it is" if self._place.image else ""))

    def _sessions(self, words: str) -> None:
        if words:
            self._search(words)
            return
        for each in self._place.sessions.sessions(project=self._place.project, most=MOST_LISTED):
            mark = "*" if each.id == self._chat.talk.session else " "
            show(f"{mark} {each.id}  {each.messages:>4}  {cut_line(each.title, 80)}")

    def _resume(self, name: str) -> None:
        self._chat.use(Talking(name or None, is_continued=not name).talk(self._place))
        self.show_end()

    def show_end(self) -> None:
        """Show the last messages of the conversation that is resumed."""
        talk = self._chat.talk
        tell(f"{talk.session}: {talk.record.title}, {len(talk.kept)} messages")
        if unanswered(talk.conversation):
            tell("its last answer was interrupted: calls that are open are finished before your next message")
        for message in [each for each in talk.conversation if each.role != "tool" and each.text][
            -MOST_SHOWN:
        ]:
            show(
                f"{'> ' if message.role == 'user' else ''}{cut_line(message.text, LONGEST_LINE)}",
                err=True,
                dim=True,
            )

    def _fork(self, title: str) -> None:
        if not self._chat.talk.kept:
            raise SourceError("there is nothing to copy yet")
        self._chat.talk = self._chat.talk.fork(title=title)
        tell(f"{self._chat.talk.session}: a copy; the conversation before stays as it is")

    def _rename(self, title: str) -> None:
        self._chat.talk.rename(title)
        tell(f"{self._chat.talk.session}: {title}")

    def _search(self, words: str) -> None:
        found = self._place.sessions.search(words, project=self._place.project, most=MOST_LISTED)
        for each in found:
            show(f"{each.session.id}  {cut_line(each.session.title, 60)}", bold=True)
            show(f"  {each.message.number:>4}  {each.message.role}: {each.excerpt}")
        if not found:
            tell("nothing was found")

    def _compact(self, _: str) -> None:
        chat, model = self._chat, self._place.model
        made = chat.runner.run(compact(chat.talk, self._place.provider(model), model))
        # The attachments of the removed messages are sent again with the next one.
        chat.context.tell_again()
        size = f"about {made.tokens_before:,} tokens before, {made.tokens_after:,} now"
        tell(f"a summary stands for {made.messages} messages: {size}")
        show(made.summary, dim=True)

    def _cost(self, _: str) -> None:
        responses = self._chat.responses
        if not responses:
            tell("nothing was used yet")
            return
        tokens = responses[0].usage
        for each in responses[1:]:
            tokens += each.usage
        costs = [each.cost for each in responses]
        known = sum(cost for cost in costs if cost is not None)
        unknown = costs.count(None)
        told = cost_text(None if unknown == len(costs) else known)
        without = counted(unknown, "answer") if unknown and unknown < len(costs) else ""
        left = f", without {without} of unknown price" if without else ""
        answers = counted(len(responses), "answer")
        show(f"{answers}: {tokens.input:,} tokens in, {tokens.output:,} out, {told}{left}")

    def _context(self, _: str) -> None:
        from gramercy.providers.models import context_window

        own, talk = self._place.agent.specification, self._chat.talk
        tools = "".join(tool.to_gram() for tool in own.tools)
        fixed, said = about_tokens(len(own.instruction + tools)), tokens_of(talk.conversation)
        window = context_window(self._place.model)
        share = f"{(fixed + said) / window:.0%} of {window:,}" if window else "of a window that is not known"
        show(
            f"about {fixed:,} tokens of instruction and tools, {said:,} of {len(talk.kept)} messages: {share}"
        )
        for item in self._chat.context:
            pin = ", pinned" if item.is_pinned else ""
            show(f"  {item.id:<8} {item.title}, about {item.tokens:,} tokens{pin}")

    def _add(self, rest: str) -> None:
        """Attach a file or a text to the conversation."""
        attached = self._place.mentions().resolve(f"@{rest}" if rest[0] != "@" else rest).attached
        for each in attached:
            item = self._chat.context.add("file", each.text, source=each.title)
            tell(f"{item.id}: {item.title}, about {item.tokens:,} tokens, told with your next message")
        if not attached:
            item = self._chat.context.add("text", rest)
            tell(f"{item.id}: a text, about {item.tokens:,} tokens, told with your next message")

    def _pin(self, name: str) -> None:
        item = self._chat.context.pin(name)
        tell(f"{item.id} stays until it is dropped")

    def _drop(self, name: str) -> None:
        if name == "all":
            tell(f"{self._chat.context.clear()} dropped; what is pinned stays")
        else:
            tell(f"{self._chat.context.remove(name).id} dropped; what was said stays said")

    def _copy(self, _: str) -> None:
        if not self._chat.responses:
            raise SourceError("there is no answer yet")
        text = self._chat.responses[-1].content.encode()
        if len(text) > LARGEST_COPY:
            raise SourceError(
                f"the answer is longer than {LARGEST_COPY:,} bytes: /export writes it to a file"
            )
        # With OSC 52 the terminal sets the clipboard, even when the person sits at another machine.
        sys.stdout.write(f"\x1b]52;c;{b64encode(text).decode()}\a")
        sys.stdout.flush()
        tell(f"{len(text):,} bytes are in the clipboard, if the terminal lets programs set it")

    def _export(self, rest: str) -> None:
        talk = self._chat.talk
        if not talk.kept:
            raise SourceError("there is nothing to write yet")
        is_json = rest.endswith(".json")
        exported = export_json if is_json else export_markdown
        made = exported(talk.record, talk.kept)
        text = json_text(made) if is_json else str(made).rstrip("\n")
        if rest in ("", "-"):
            show(text)
            return
        try:
            write_whole(Path(self._place.project) / Path(rest).expanduser(), f"{text}\n")
        except OSError as error:
            raise SourceError(f"{rest} cannot be written: {reason_of(error)}") from None
        tell(f"written to {rest}")

    def _role(self, name: str) -> None:
        if name == "none":
            self._place.additions.pop("role", None)
            tell("no role")
        elif name:
            self._place.additions["role"] = _own_text("roles", name)
            tell(f"the role {name}")
        else:
            _list_own("roles")

    def _template(self, rest: str) -> None:
        name, _, words = rest.partition(" ")
        if not name:
            _list_own("templates")
            return
        text = _own_text("templates", name)
        message = text.replace("{}", words) if "{}" in text else "\n\n".join(filter(None, (text, words)))
        show(message, dim=True)
        self._chat.say(message)

    def _tools(self, _: str) -> None:
        wanted = {each.name for each in self._place.agent.specification.tools}
        for tool in self._place.library.values():
            if tool.name in wanted:
                show(summary_line(tool))
        for agent in self._place.agent.specification.agents:
            show(f"{agent.name:<24} {'agent':<10} {agent.description or agent.instruction:.80}")


def _unknown(word: str) -> str:
    begun = [name for name in COMMANDS if name.startswith(word) and word != "/"]
    close = begun or suggest(word, COMMANDS)
    hint = f"did you mean {' or '.join(close[:3])}?" if close else "/help lists them"
    return f"there is no command {word:.60}: {hint} (a message begins with a space where it begins with /)"


def own_directory(kind: str) -> Path:
    """Return the directory of a person's roles or templates, beside their configuration."""
    from gramercy.workbench.configuration import user_file

    return user_file().parent / kind


def _own_files(kind: str) -> dict[str, Path]:
    try:
        return {file.stem: file for file in sorted(own_directory(kind).glob("*.md"))}
    except OSError:
        return {}


def _own_text(kind: str, name: str) -> str:
    found = _own_files(kind)
    if name not in found:
        hint = did_you_mean(name, found, f"write {own_directory(kind) / name}.md")
        raise SourceError(f"there is no {kind[:-1]} {name!r:.60}: {hint}")
    try:
        return found[name].read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{found[name]} cannot be read: {error}") from None


def _list_own(kind: str) -> None:
    found = _own_files(kind)
    for name in found:
        show(name)
    if not found:
        tell(f"there are none: files NAME.md in {own_directory(kind)} are {kind}")
