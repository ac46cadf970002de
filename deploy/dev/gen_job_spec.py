#!/usr/bin/env python3
"""Writes docs/job-spec.md from the comments of proto/tundish/v1/job.proto, or checks it.

gen_job_spec.py           writes the file
gen_job_spec.py --check   fails when the file is not what would be written

Needs protoc and the protobuf wheel of .venv.
"""
import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "job-spec.md"
PROTO = "tundish/v1/job.proto"
Field = descriptor_pb2.FieldDescriptorProto

SCALARS = {
    Field.TYPE_STRING: "text", Field.TYPE_BOOL: "true or false", Field.TYPE_BYTES: "base 64",
    Field.TYPE_DOUBLE: "number", Field.TYPE_FLOAT: "number",
    Field.TYPE_INT32: "whole number", Field.TYPE_INT64: "whole number",
    Field.TYPE_UINT32: "whole number", Field.TYPE_UINT64: "whole number",
}

HEAD = """# The job file

Made from `proto/tundish/v1/job.proto` by `deploy/dev/gen_job_spec.py`; change the comments there.

A job file is YAML or JSON. Keys are the names below, `tundish submit FILE` sends it. A key that is not
listed is an error, and so are a key given twice, anchors, aliases and tags. Enum values may be written
in any case. What may be left out says its default; `tundish describe JOB` shows the values in force.
"""


def load():
    """The file's descriptor with its comments."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", "-I", str(ROOT / "proto"), "--include_source_info",
                        f"--descriptor_set_out={out.name}", PROTO], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
    return next(f for f in files.file if f.name == PROTO)


def comments(proto):
    """Comment before an element, as lines joined, by the element's path."""
    return {tuple(location.path): " ".join(location.leading_comments.split())
            for location in proto.source_code_info.location}


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def type_of(field, enums):
    short = field.type_name.rsplit(".", 1)[-1]
    if field.type == Field.TYPE_MESSAGE:
        text = f"[{short}](#{short.lower()})"
    elif field.type == Field.TYPE_ENUM:
        text = " or ".join(f"`{v.name}`" for v in enums[short].value
                           if not v.name.endswith("_UNSPECIFIED"))
    else:
        text = SCALARS[field.type]
    return f"list of {text}" if field.label == Field.LABEL_REPEATED else text


def enum_notes(index, enum, notes):
    """What the values mean, for those with a comment: 5 is a file's enums, 2 an enum's values."""
    said = [f"`{v.name}`: {notes[5, index, 2, i]}"
            for i, v in enumerate(enum.value) if notes.get((5, index, 2, i))]
    return " " + " ".join(said) if said else ""


def section(message, order, notes, enums, enum_index):
    """4 is a file's messages, 2 a message's fields, 8 its oneofs."""
    index = order[message.name]
    lines = [f"## {message.name}", ""]
    if notes.get((4, index)):
        lines += [notes[4, index], ""]
    lines += ["| key | value | meaning |", "| --- | --- | --- |"]
    above = None
    for i, field in enumerate(message.field):
        note = notes.get((4, index, 2, i), "")
        if not note and field.type == Field.TYPE_MESSAGE:
            note = notes.get((4, order[field.type_name.rsplit(".", 1)[-1]]), "")
        elif not note and above is not None and above.type == field.type:
            note = f"As `{above.name}`."  # The comment of a run of fields stands before its first.
        if notes.get((4, index, 2, i)):
            above = field
        if field.HasField("oneof_index") and not field.proto3_optional:
            group = notes.get((4, index, 8, field.oneof_index), "")
            siblings = [f"`{f.name}`" for f in message.field
                        if f.HasField("oneof_index") and f.oneof_index == field.oneof_index]
            note = f"{note} Of {' and '.join(siblings)}: {group}" if group else note
        if field.type == Field.TYPE_ENUM:
            short = field.type_name.rsplit(".", 1)[-1]
            note += enum_notes(enum_index[short], enums[short], notes)
        lines.append(f"| `{field.name}` | {cell(type_of(field, enums))} | {cell(note)} |")
    return "\n".join(lines) + "\n"


def reachable(messages, name, seen):
    """`name` and the messages of its fields, depth first, each once."""
    if name in seen:
        return
    seen.append(name)
    for field in messages[name].field:
        if field.type == Field.TYPE_MESSAGE:
            reachable(messages, field.type_name.rsplit(".", 1)[-1], seen)


def document():
    proto = load()
    notes = comments(proto)
    messages = {m.name: m for m in proto.message_type}
    order = {m.name: i for i, m in enumerate(proto.message_type)}
    enums = {e.name: e for e in proto.enum_type}
    enum_index = {e.name: i for i, e in enumerate(proto.enum_type)}
    names = []
    reachable(messages, "JobSpec", names)
    return "\n".join([HEAD] + [section(messages[n], order, notes, enums, enum_index)
                               for n in names])


def main():
    text = document()
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text() != text:
            sys.exit(f"{TARGET.relative_to(ROOT)} is stale: run deploy/dev/gen_job_spec.py")
        return
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
