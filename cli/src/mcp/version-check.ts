/**
 * Versions of requests on standard input.
 *
 * Always: a request of the newer era that names a version which is not served is refused, with those that
 * are. The library checks only the first one of a connection.
 */
import {
  isJSONRPCRequest,
  type JSONRPCMessage,
  PROTOCOL_VERSION_META_KEY,
  type Transport,
  UnsupportedProtocolVersionError,
} from "@modelcontextprotocol/server";

/** The library's, of the newer era. */
const SUPPORTED = ["2026-07-28"];

/** Checks what arrives at the transport. */
export function checkingVersions(transport: Transport): Transport {
  const checked: Transport = {
    start: async () => {
      transport.onmessage = (message, extra) => {
        const refusal = refusalOf(message);
        if (refusal === null) checked.onmessage?.(message, extra);
        else transport.send(refusal).catch((error: Error) => checked.onerror?.(error));
      };
      transport.onerror = (error) => checked.onerror?.(error);
      transport.onclose = () => checked.onclose?.();
      await transport.start();
    },
    send: (message, options) => transport.send(message, options),
    close: () => transport.close(),
  };
  return checked;
}

function refusalOf(message: JSONRPCMessage): JSONRPCMessage | null {
  if (!isJSONRPCRequest(message)) return null;
  const requested = message.params?._meta?.[PROTOCOL_VERSION_META_KEY];
  if (typeof requested !== "string" || SUPPORTED.includes(requested)) return null;
  const { code, message: text, data } = new UnsupportedProtocolVersionError({ supported: SUPPORTED, requested });
  return { jsonrpc: "2.0", id: message.id, error: { code, message: text, data } };
}
