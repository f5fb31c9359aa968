/**
 * Tools for files of machines.
 *
 * Always: a read holds at most what it returns; bytes that are not text are passed as base64.
 */
import type { Flotilla } from "@flotilla/sdk";
import { z } from "zod";
import { findMachine } from "../../machine/find.ts";
import { readPart } from "../read-part.ts";
import { json, text } from "../results.ts";
import { machineInput, type Tool, tool } from "../tool.ts";

const PART_BYTES_DEFAULT = 32 * 1024;
const PART_BYTES_MAX = 256 * 1024;
const CONTENT_CHARACTERS_MAX = 4 * 1024 * 1024;

const path = z.string().min(1).max(4096).describe("an absolute path in the machine");

const needs = ["machine:files", "machine:read"];

const idOf = async (flotilla: Flotilla, machine: string): Promise<string> => (await findMachine(flotilla, machine)).id;

const readFile = tool({
  name: "read_file",
  title: "Read a file",
  description: "Reads a file of a machine, or a part of it. Bytes that are not UTF-8 come as base64.",
  needs,
  input: z.object({
    machine: machineInput,
    path,
    offset: z.number().int().min(0).default(0).describe("the first byte"),
    limit: z.number().int().min(1).max(PART_BYTES_MAX).default(PART_BYTES_DEFAULT).describe("at most so many bytes"),
  }),
  effect: "reads",
  run: async ({ machine, path: file, offset, limit }, { session, signal }) => {
    await session.common.ceilings.starting(session);
    const id = await idOf(session.flotilla, machine);
    const part = await readPart(session.flotilla, { id, path: file, offset, limit, signal });
    const { total, bytes } = part;
    const end = offset + bytes.byteLength;
    const rest =
      total === null || end < total
        ? [`[bytes ${offset} to ${end} of ${total ?? "more"}: read on at offset ${end}]`]
        : [];
    const content = part.text ?? `base64:${Buffer.from(bytes).toString("base64")}`;
    return { content: [content, ...rest].map((each) => ({ type: "text" as const, text: each })) };
  },
});

const writeFile = tool({
  name: "write_file",
  title: "Write a file",
  description: "Writes a file of a machine, with what is given instead of what it had.",
  needs,
  input: z.object({
    machine: machineInput,
    path,
    content: z.string().max(CONTENT_CHARACTERS_MAX),
    encoding: z.enum(["utf8", "base64"]).default("utf8"),
  }),
  effect: "makes",
  run: async ({ machine, path: file, content, encoding }, { session, signal }) => {
    await session.common.ceilings.starting(session);
    const id = await idOf(session.flotilla, machine);
    const bytes = new Uint8Array(Buffer.from(content, encoding));
    await session.flotilla.putFileAt(id, file, bytes, { signal });
    return text(`wrote ${bytes.byteLength} bytes`);
  },
});

const listFiles = tool({
  name: "list_files",
  title: "List a directory",
  description: "Lists a directory of a machine.",
  needs,
  input: z.object({ machine: machineInput, path }),
  effect: "reads",
  run: async ({ machine, path: file }, { session, signal }) => {
    await session.common.ceilings.starting(session);
    const id = await idOf(session.flotilla, machine);
    const answer = await session.flotilla.readFileAt(id, file, { query: { list: true }, signal });
    return json(await answer.json());
  },
});

const deleteFile = tool({
  name: "delete_file",
  title: "Delete a file",
  description: "Deletes a file, or an empty directory, of a machine.",
  needs,
  input: z.object({ machine: machineInput, path }),
  effect: "destroys",
  question: async ({ machine, path: file }, { session }) => {
    const { id, name } = await findMachine(session.flotilla, machine);
    return { text: `Delete ${JSON.stringify(file)} in the machine ${JSON.stringify(name ?? id)}?`, target: id };
  },
  run: async ({ machine, path: file }, { session, signal }) => {
    await session.common.ceilings.starting(session);
    await session.flotilla.deleteFileAt(await idOf(session.flotilla, machine), file, { signal });
    return text("deleted");
  },
});

export const fileTools: readonly Tool[] = [readFile, writeFile, listFiles, deleteFile];
