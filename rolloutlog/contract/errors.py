"""Every error that rolloutlog raises on purpose, and what the reader should do about it.

Guarantees: each class has an exit code of the command line (design/commands#exit-codes), a message that says what is
wrong and a `hint` that says what to do. Leaves out: reasons of rejected records, which are values
(`vocabulary.RejectReason`), since a bad record is data and not a failure of the program that reads it.
"""

from __future__ import annotations

from typing import ClassVar


class RolloutlogError(Exception):
    """Base of all errors raised on purpose: `message` says what is wrong, `hint` what to do."""

    exit_code: ClassVar[int] = 2
    default_hint: ClassVar[str] = "see docs/when-something-is-wrong.md"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint
        self.add_note(f"hint: {self.hint}")  # which a traceback prints below the message


class SettingsError(RolloutlogError):
    """Settings that can't work, contradict each other, or aren't known."""

    default_hint = (
        "docs/reference/settings.md has every setting; `rolloutlog config show` prints them with their origin"
    )


class SampleUnusable(SettingsError):
    """A sample can't be trained as it is asked: too long, outside the vocabulary, without a temperature."""

    default_hint = "docs/write-a-trainer.md says what `packs` and losses are given"

    def __init__(self, message: str, hint: str | None, group: str, member: int, handle: str) -> None:
        super().__init__(message, hint)
        self.group, self.member, self.handle = group, member, handle


class MissingExtra(RolloutlogError):
    """A command needs an optional dependency that isn't installed."""

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(
            f"this needs the extra [{extra}] ({module} isn't installed)", f'pip install "rolloutlog[{extra}]"'
        )
        self.extra = extra


class ClientUnsupported(RolloutlogError):
    """The installed Kafka client isn't of the series that this version of rolloutlog was written for."""

    default_hint = "install rolloutlog with its dependencies again"


class PathUnusable(RolloutlogError):
    """A file or folder of this machine, or the output, can't be read or written."""

    default_hint = "check the path, its rights, and the room on its disk"


class BrokerUnreachable(RolloutlogError):
    """No Kafka broker answered at the given address, or none is configured."""

    exit_code = 3
    default_hint = "start one with `rolloutlog broker up`, or give --bootstrap-servers"


class BrokerFailed(RolloutlogError):
    """The embedded broker couldn't be fetched, started or stopped."""

    exit_code = 3
    default_hint = "`rolloutlog broker logs` shows what the broker wrote"


class TopicMismatch(RolloutlogError):
    """A topic exists with settings other than the run needs; the message names the setting."""

    default_hint = (
        "give the settings that the topics were made with (rolloutlog.toml, --config, ROLLOUTLOG_*), "
        "or another --namespace"
    )


class RunMismatch(RolloutlogError):
    """The run's declaration on the log disagrees with this deployment's settings, or there is none."""

    default_hint = (
        "give this deployment the run's values (rolloutlog.toml, --config, ROLLOUTLOG_*; `rolloutlog config show` says "
        "where its own come from); other values need a run of their own, in another --namespace"
    )


class RecordTooLarge(RolloutlogError):
    """A record is above the topic's limit and no blob store is configured."""

    default_hint = "set `blobs` to a folder or URL, so that large bodies go there and the event carries a claim"


class InvalidRecord(RolloutlogError, ValueError):
    """A record that a producer was asked to write breaks the contract; nothing was written."""

    default_hint = "docs/write-a-producer.md gives the rules of a record"

    def __init__(self, reason: str, message: str, hint: str | None = None) -> None:
        super().__init__(f"{reason}: {message}", hint)
        self.reason = reason


class NotOpen(RolloutlogError):
    """A producer or publisher was used before it was opened, after it was closed, or in a forked child."""

    default_hint = "open it with `with` or `async with`, in the process that uses it"


class BlobUnavailable(RolloutlogError):
    """The blob store can't be used: it isn't there, refuses this user, is full, or doesn't answer."""

    exit_code = 4
    default_hint = "check that the blob store of the run (`blobs`) is mounted and may be used here"


class EngineUnavailable(RolloutlogError):
    """An engine doesn't answer, or can't load any weights; a member that it was to sample is given back."""

    exit_code = 4
    default_hint = "is the inference server up, and are the published weights readable where it runs?"


class EngineFailed(RolloutlogError):
    """The odds of the torch engine aren't numbers, or it was closed while it sampled."""

    exit_code = 4
    default_hint = "look at the trainer's loss, and go back with `train run --resume checkpoint` if the weights are bad"


class UnknownCharacter(RolloutlogError):
    """A text has a character, or a message a role, that the torch engine's tokenizer doesn't have."""

    default_hint = "name every letter of the tasks in `worker.engine.letters`"


class WeightsUnusable(RolloutlogError):
    """Weights that are missing, cut short, of another digest, or of another model."""

    default_hint = "workers need to read where the trainer writes: `training.weights` is a folder or URL that all see"


class WeightsUnwritten(RolloutlogError):
    """Weights couldn't be written, since a disk is full or a store is away: nothing of them was published."""

    exit_code = 4
    default_hint = "check the place of `training.weights`, its rights, and the room on its disk"


class UpdateRefused(RolloutlogError):
    """An inference server says that it didn't take weights, so it has those that it had."""

    default_hint = "its own log says why"


class EpisodeFailed(RolloutlogError):
    """An episode of verifiers ended with an error of its own: of its harness, its task, or its rewards."""

    default_hint = "the member has failed with this error; mend the environment where it isn't the policy's fault"


class ClientFailed(RolloutlogError):
    """Kafka refused a request, or lost track of it; the message has its answer."""

    exit_code = 4
    default_hint = "try again: events have the same id on every try, so a second copy changes nothing"


class NotAllowed(RolloutlogError):
    """The cluster's access control refuses this client."""

    default_hint = "`rolloutlog topics acls` prints the rights that each role needs"


class SecurityMismatch(RolloutlogError):
    """A broker is there, and doesn't agree with `command_config` on TLS, certificates, user or password."""

    default_hint = "docs/secured-clusters.md says what a client.properties needs"


class Fenced(RolloutlogError):
    """Another process took this role (a newer owner of the partition, a second trainer); nothing more is written."""

    exit_code = 4
    default_hint = "stop one of the two; the newer one goes on where this one ended"


class IndexMismatch(RolloutlogError):
    """The index of a partition and its inputs disagree, it can't be read, or an offset is out of range."""

    exit_code = 4
    default_hint = "stop the buffer services; `rolloutlog buffer reindex` folds the index anew from what is on the log"


class OpenTransaction(RolloutlogError):
    """An unfinished transaction hides records, so a question can't be decided yet."""

    exit_code = 4
    default_hint = "wait for the transaction timeout (10 s) and ask again"


class Starved(RolloutlogError):
    """Nothing arrived within the set time; the message names group, partition, offset and lag."""

    exit_code = 4
    default_hint = "`rolloutlog status` shows who is late"


class TrainingDiverged(RolloutlogError):
    """A loss or a gradient is no number. Nothing of the step was published, and its groups aren't trained."""

    exit_code = 4
    default_hint = "lower `optimizer.lr`, or go back with `train run --resume checkpoint`"


class ModelFailed(RolloutlogError):
    """A model raised an exception of its own while it was trained; the message names it. Nothing was published."""

    exit_code = 4
    default_hint = (
        "--debug shows where; with `model.vocabulary` and `model.context` said, groups that it can't take are left out "
        "by name; where memory is short, lower `training.max_tokens`"
    )


class CheckpointUnusable(RolloutlogError):
    """A checkpoint that the log names is missing, damaged, or none of ours."""

    exit_code = 4
    default_hint = "put the file back, or start from an older one: `Start(resume=checkpoints.up_to(step))`"


class RanksDisagree(RolloutlogError):
    """Ranks of one job are at different steps, or one of them has failed."""

    exit_code = 4
    default_hint = "all ranks draw, train and tell the same batches in the same order; start the job again"


class ServiceFailed(RolloutlogError):
    """A service of `rolloutlog run` died too often, or can't run with these settings; the others ended in order."""

    exit_code = 4
    default_hint = "its log says why; `rolloutlog run` goes on from there once it is mended"


class ReaderFailed(RolloutlogError):
    """Processes that read the log for this one died again and again, before they had read anything."""

    exit_code = 4
    default_hint = "what they printed says why; with `trainer.readers` 0 this process reads the log itself"


class FilterFailed(RolloutlogError):
    """A filter of groups raised an exception of its own; the message names filter and group."""

    exit_code = 2
    default_hint = "mend the filter, or leave it out of `trainer.filters`"


class AssignmentMismatch(RolloutlogError):
    """The partitions of the three input topics given to this member aren't equal."""

    exit_code = 4
    default_hint = "every member of the group must subscribe to the same topics with the range assignor"


class RecordsDeleted(RolloutlogError):
    """Records that open groups or a source need, or the facts about ended groups, were deleted."""

    exit_code = 4
    default_hint = (
        "let `topics.retention_ms` outlast the longest pause of the trainer; `rolloutlog gc` keeps what it needs"
    )


class UnknownPolicy(RolloutlogError):
    """A token claims a policy that was never published on `policy-versions`."""

    exit_code = 4
    default_hint = "publish policies with PolicyPublisher before sampling with them"


class SourceUnreadable(RolloutlogError):
    """A path given to an importer can't be read, or holds no rollouts."""

    default_hint = "give a run folder, its `rollouts`, a step folder or a file"


class ManifestInvalid(RolloutlogError):
    """A manifest of a replay buffer, or its file of candidates, can't be read or isn't what was written."""

    default_hint = "`rolloutlog replay --format manifest` writes one; keep its folder as it is"


class NotFound(RolloutlogError):
    """The record, topic, group or blob that was asked for isn't there."""

    exit_code = 1
    default_hint = "`rolloutlog status` shows what is on the log"


class TopicMissing(NotFound):
    """A topic of the namespace isn't there."""

    exit_code = 2
    default_hint = "is the --namespace right? `rolloutlog topics create` makes its topics"
