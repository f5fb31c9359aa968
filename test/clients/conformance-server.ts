/**
 * The MCP server of the command line, over HTTP and without a key, with the tools that the public conformance
 * suite calls: `node conformance-server.ts` prints its address.
 */
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { systemClock } from "@flotilla/base/clock";
import { Flotilla } from "@flotilla/sdk";
import { inputRequired, type McpServer, ResourceTemplate } from "@modelcontextprotocol/server";
import { z } from "zod";
import { Ceilings } from "../../cli/src/mcp/ceilings.ts";
import { listen } from "../../cli/src/mcp/listen.ts";
import { makeServer } from "../../cli/src/mcp/server.ts";
import { askedCodec } from "../../cli/src/mcp/session.ts";
import { addExtras } from "./conformance-extras.ts";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
const said = (text: string) => ({ content: [{ type: "text" as const, text }] });
const image = { type: "image" as const, data: PNG, mimeType: "image/png" };

function addContent(server: McpServer): void {
  const tool = (name: string, content: object[], isError = false): void => {
    server.registerTool(name, { description: name }, () => ({ content, ...(isError ? { isError } : {}) }) as never);
  };
  const embedded = {
    uri: "test://embedded-resource",
    mimeType: "text/plain",
    text: "This is an embedded resource content.",
  };
  const mixed = {
    uri: "test://mixed-content-resource",
    mimeType: "application/json",
    text: '{"test":"data","value":123}',
  };
  tool("test_simple_text", said("This is a simple text response for testing.").content);
  tool("test_image_content", [image]);
  tool("test_audio_content", [{ type: "audio", data: WAV, mimeType: "audio/wav" }]);
  tool("test_embedded_resource", [{ type: "resource", resource: embedded }]);
  tool("test_multiple_content_types", [
    { type: "text", text: "Multiple content types test:" },
    image,
    { type: "resource", resource: mixed },
  ]);
  tool("test_error_handling", said("This tool intentionally returns an error for testing").content, true);
}

function addProgress(server: McpServer): void {
  server.registerTool("test_tool_with_progress", { description: "Says how far it is" }, async ({ mcpReq }) => {
    const progressToken = mcpReq._meta?.progressToken;
    for (const progress of [0, 50, 100])
      if (progressToken !== undefined)
        await mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: 100 } });
    return said(String(progressToken));
  });
}

function addElicitation(server: McpServer): void {
  const ask = (name: string, requestedSchema: object, input?: z.ZodObject): void => {
    const config = { description: name, ...(input === undefined ? {} : { inputSchema: input }) };
    server.registerTool(
      name,
      config as never,
      ((...given: unknown[]) => {
        const { mcpReq } = given.at(-1) as { mcpReq: { inputResponses?: Record<string, unknown> } };
        const answer = mcpReq.inputResponses?.["asked"];
        if (answer !== undefined) return said(`Elicitation completed: ${JSON.stringify(answer)}`);
        const { message = "Please answer" } = (input === undefined ? {} : given[0]) as { message?: string };
        return inputRequired({ inputRequests: { asked: inputRequired.elicit({ message, requestedSchema } as never) } });
      }) as never,
    );
  };
  const object = (properties: object, required: string[] = []): object => ({ type: "object", properties, required });
  const text = { type: "string" };
  ask(
    "test_elicitation",
    object({ username: { ...text, description: "User's response" }, email: { ...text, description: "User's email" } }, [
      "username",
      "email",
    ]),
    z.object({ message: z.string() }),
  );
  ask(
    "test_elicitation_sep1034_defaults",
    object({
      name: { ...text, default: "John Doe" },
      age: { type: "integer", default: 30 },
      score: { type: "number", default: 95.5 },
      status: { ...text, enum: ["active", "inactive", "pending"], default: "active" },
      verified: { type: "boolean", default: true },
    }),
  );
  const titled = ["First", "Second", "Third"].map((title, index) => ({
    const: `value${index + 1}`,
    title: `${title} Option`,
  }));
  const options = ["option1", "option2", "option3"];
  ask(
    "test_elicitation_sep1330_enums",
    object({
      untitledSingle: { ...text, enum: options },
      titledSingle: { ...text, oneOf: titled },
      legacyEnum: { ...text, enum: ["opt1", "opt2", "opt3"], enumNames: ["Option One", "Option Two", "Option Three"] },
      untitledMulti: { type: "array", items: { ...text, enum: options } },
      titledMulti: { type: "array", items: { anyOf: titled } },
    }),
  );
}

function addResources(server: McpServer): void {
  const one = (uri: string, content: object): void => {
    server.registerResource(uri, uri, {}, () => ({ contents: [{ uri, ...content }] }) as never);
  };
  one("test://static-text", { mimeType: "text/plain", text: "This is the content of the static text resource." });
  one("test://static-binary", { mimeType: "image/png", blob: PNG });
  const template = new ResourceTemplate("test://template/{id}/data", { list: undefined });
  server.registerResource("template", template, {}, (uri, { id }) => ({
    contents: [
      {
        uri: uri.href,
        mimeType: "application/json",
        text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${String(id)}` }),
      },
    ],
  }));
}

const flotilla = new Flotilla({
  url: process.env["FLOTILLA_URL"] ?? "",
  apiKey: process.env["FLOTILLA_API_KEY"],
});
const access = { flotilla, caller: await flotilla.getCaller() };
const common = { ceilings: new Ceilings({}, systemClock), asked: askedCodec(), confirms: true, version: "0" };
const { address } = await listen({
  host: "127.0.0.1",
  port: 0,
  names: [],
  clock: systemClock,
  authenticate: async () => access,
  factory: () => {
    const server = makeServer({ ...access, common });
    addExtras(server, image);
    for (const add of [addContent, addProgress, addElicitation, addResources]) add(server);
    return server;
  },
  note: (text) => void process.stderr.write(`${text}\n`),
});
// The suite has no key: one is added on its way.
const front = createServer((message, response) => {
  const headers = { ...message.headers, authorization: "Bearer smk_test" };
  const onward = request(`http://${address}${message.url}`, { method: message.method, headers }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  onward.on("error", () => response.destroy());
  response.on("close", () => onward.destroy());
  message.pipe(onward);
});
front.listen(0, "127.0.0.1", () => {
  process.stdout.write(`http://127.0.0.1:${(front.address() as AddressInfo).port}/mcp\n`);
});
