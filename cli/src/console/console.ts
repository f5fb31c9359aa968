/**
 * `flotilla console`: prints a link that signs a browser in to the console, as the key of this call.
 */
import type { Call } from "../call.ts";

export async function run(call: Call): Promise<void> {
  const flotilla = call.flotilla();
  const link = await flotilla.createConsoleLink();
  const url = `${flotilla.url}${link.path}`;
  if (call.output.isJson) return call.output.json({ url, expiresAt: link.expiresAt });
  call.output.line(url);
  call.output.note("the link opens once, within ten minutes, in a browser on the server's host or over https");
}
