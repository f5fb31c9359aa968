/**
 * The full form of an image reference, as nodes report it: `alpine` is `docker.io/library/alpine:latest`. Pure.
 *
 * Only for telling whether two references name the same image; what a reference may look like is decided by nodes.
 */
export function fullReference(reference: string): string {
  const [named = "", digest] = reference.split("@", 2);
  const slash = named.indexOf("/");
  const first = slash === -1 ? "" : named.slice(0, slash);
  const hasHost = first === "localhost" || first === "local" || /[.:]/.test(first);
  const path = hasHost ? named : `docker.io/${slash === -1 ? `library/${named}` : named}`;
  if (digest !== undefined) return `${path}@${digest}`;
  return path.lastIndexOf(":") > path.lastIndexOf("/") ? path : `${path}:latest`;
}
