/**
 * Prompts, logging, sampling, completion and subscriptions as the public conformance suite calls them. Our
 * server has none of them; the suite's scenarios show that the code around it carries them.
 */
import { completable, fromJsonSchema, inputRequired, type McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";

const user = (content: object) => ({ role: "user" as const, content });
const text = (said: string) => ({ type: "text" as const, text: said });

/** Registers what is in no tool of ours, before the server is connected. */
export function addExtras(server: McpServer, image: object): void {
  server.server.registerCapabilities({ logging: {}, completions: {}, resources: { subscribe: true } });
  for (const method of ["resources/subscribe", "resources/unsubscribe"] as const)
    server.server.setRequestHandler(method, () => ({}));
  addPrompts(server, image);
  addSchema(server);
  const config = { description: "Sends log messages" };
  server.registerTool("test_tool_with_logging", config, async ({ mcpReq }) => {
    const messages = ["Tool execution started", "Tool processing data", "Tool execution completed"];
    for (const data of messages)
      await mcpReq.notify({ method: "notifications/message", params: { level: "info", data } });
    return { content: [text("logged")] };
  });
  const inputSchema = z.object({ prompt: z.string() });
  server.registerTool(
    "test_sampling",
    { description: "Asks the client's model", inputSchema },
    ({ prompt }, { mcpReq }) => {
      const answer = mcpReq.inputResponses?.["sampled"];
      if (answer !== undefined) return { content: [text(`The model said: ${JSON.stringify(answer)}`)] };
      const params = { messages: [user(text(prompt))], maxTokens: 100 } as never;
      return inputRequired({ inputRequests: { sampled: inputRequired.createMessage(params) } });
    },
  );
}

function addSchema(server: McpServer): void {
  const text = { type: "string" } as const;
  const inputSchema = fromJsonSchema({
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    $defs: { address: { type: "object", properties: { street: text, city: text } } },
    properties: { name: text, address: { $ref: "#/$defs/address" } },
    additionalProperties: false,
  });
  server.registerTool("json_schema_2020_12_tool", { description: "Has a schema", inputSchema }, () => ({
    content: [{ type: "text", text: "fits" }],
  }));
}

function addPrompts(server: McpServer, image: object): void {
  const prompt = (name: string, ...contents: object[]): void => {
    server.registerPrompt(name, { description: name }, () => ({ messages: contents.map(user) }) as never);
  };
  prompt("test_simple_prompt", text("This is a simple prompt for testing."));
  prompt("test_prompt_with_image", image, text("Please analyze the image above."));
  const word = completable(z.string(), (begun) => ["paris", "park", "party"].filter((each) => each.startsWith(begun)));
  server.registerPrompt(
    "test_prompt_with_arguments",
    { description: "Has arguments", argsSchema: z.object({ arg1: word, arg2: z.string() }) },
    ({ arg1, arg2 }) => ({ messages: [user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))] }) as never,
  );
  server.registerPrompt(
    "test_prompt_with_embedded_resource",
    { description: "Embeds a resource", argsSchema: z.object({ resourceUri: z.string() }) },
    ({ resourceUri: uri }) => {
      const resource = { uri, mimeType: "text/plain", text: "Embedded resource content for testing." };
      const contents = [{ type: "resource", resource }, text("Please process the embedded resource above.")];
      return { messages: contents.map(user) } as never;
    },
  );
}
