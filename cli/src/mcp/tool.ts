/**
 * What a tool is, and how one is registered at a server.
 *
 * Always:
 * - A tool is shown only to a key with the scopes that it needs.
 * - What cannot be undone asks back first, with a state that is signed and bound to the call, its target and
 *   the key; an answer to another question asks again.
 * - A cancelled call ends what it began: its signal goes to every call of the API.
 */
import {
  acceptedContent,
  CLIENT_CAPABILITIES_META_KEY,
  type CallToolResult,
  type InputRequiredResult,
  inputRequired,
  inputResponse,
  type McpServer,
  type ServerContext,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { may } from "./access.ts";
import { failed, refused } from "./results.ts";
import { digest, type Session } from "./session.ts";

/** One call of a tool. */
export interface Use {
  readonly session: Session;
  readonly signal: AbortSignal;
  /** Says to a client that asked for it that the call continues. */
  readonly progress: (done: number, message: string) => void;
}

/** What is asked before a tool does what cannot be undone. */
export interface Question {
  readonly text: string;
  /** The id of what it happens to, which another resource of the same name does not have. */
  readonly target: string;
}

export interface ToolDefinition<Input extends z.ZodObject> {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly needs: readonly string[];
  /** One of these is enough. */
  readonly needsOneOf?: readonly string[];
  readonly input: Input;
  /** `reads` changes nothing; `makes` adds or changes; `destroys` takes away what cannot be brought back. */
  readonly effect: "reads" | "makes" | "destroys";
  /** null: this call needs no question. */
  readonly question?: (input: z.output<Input>, use: Use) => Promise<Question | null>;
  readonly run: (input: z.output<Input>, use: Use) => Promise<CallToolResult>;
}

/** Registers itself, if the key may use it. */
export type Tool = (server: McpServer, session: Session) => void;

export function tool<Input extends z.ZodObject>(definition: ToolDefinition<Input>): Tool {
  const { name, title, description, needs, needsOneOf, input: inputSchema, effect } = definition;
  const annotations = { readOnlyHint: effect === "reads", destructiveHint: effect === "destroys" };
  return (server, session) => {
    if (!needs.every((scope) => may(session, scope))) return;
    if (needsOneOf?.some((scope) => may(session, scope)) === false) return;
    const call = async (input: z.output<Input>, context: ServerContext) => {
      const use = { session, signal: context.mcpReq.signal, progress: progressOf(context) };
      try {
        const pending = await unlessConfirmed(definition, input, { use, context, server });
        return pending ?? (await definition.run(input, use));
      } catch (error) {
        return refused(error);
      }
    };
    server.registerTool(name, { title, description, inputSchema, annotations }, call as never);
  };
}

const Confirmation = z.object({ confirm: z.boolean().describe("Yes, do it; it cannot be undone") });

interface Asking {
  readonly use: Use;
  readonly context: ServerContext;
  readonly server: McpServer;
}

/** null: go ahead. */
async function unlessConfirmed<Input extends z.ZodObject>(
  { name, question }: ToolDefinition<Input>,
  input: z.output<Input>,
  { use, context, server }: Asking,
): Promise<InputRequiredResult | CallToolResult | null> {
  const { common } = use.session;
  if (question === undefined || !common.confirms) return null;
  const asked = await question(input, use);
  if (asked === null) return null;
  const about = digest([name, asked.target, input]);
  const { inputResponses, requestState } = context.mcpReq;
  if (requestState<{ about?: unknown }>()?.about === about) {
    if (acceptedContent(inputResponses, "confirm", Confirmation)?.confirm === true) return null;
    if (inputResponse(inputResponses, "confirm").kind === "elicit") return failed("not done: the user did not agree");
  }
  if (!canAsk(context, server))
    return failed(
      `not done: ${asked.text} That needs the user's agreement, and this client cannot ask for it. ` +
        "A server that was started with --no-confirm leaves asking to the client.",
    );
  return inputRequired({
    inputRequests: { confirm: inputRequired.elicit({ message: asked.text, requestedSchema: Confirmation }) },
    requestState: await common.asked.mint({ about }, context),
  });
}

/** The newer era says at each request what the client can do, the older one once. */
function canAsk({ mcpReq }: ServerContext, { server }: McpServer): boolean {
  const envelope = mcpReq.envelope as Readonly<Record<string, unknown>> | undefined;
  // oxlint-disable-next-line typescript/no-deprecated -- the only source of the older era's
  const stated = envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? server.getClientCapabilities();
  return typeof stated === "object" && stated !== null && "elicitation" in stated;
}

function progressOf({ mcpReq }: ServerContext): Use["progress"] {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return () => {};
  return (progress, message) => {
    const params = { progressToken, progress, message };
    mcpReq.notify({ method: "notifications/progress", params }).catch(() => undefined);
  };
}

/** A machine by its name or id, as an input of most tools. */
export const machineInput = z.string().min(1).max(200).describe("the machine's name or id");
