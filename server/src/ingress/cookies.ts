/**
 * The cookie that holds a share token. Pure.
 *
 * A request may have several of the name: a guest on a neighbouring host, or a script, can set one that
 * shadows ours. So each is tried, up to a limit.
 */
export const SHARE_COOKIE = "flotilla_share";
/** Browsers keep cookies for at most 400 days. */
const MAX_AGE_SECONDS = 30 * 24 * 60 * 60;
const TRIED_MAX = 4;

export function shareCookies(header: string | undefined): readonly string[] {
  return (header ?? "")
    .split(";")
    .map((part) => part.trim())
    .filter((part) => part.startsWith(`${SHARE_COOKIE}=`))
    .map((part) => part.slice(SHARE_COOKIE.length + 1))
    .slice(0, TRIED_MAX);
}

/**
 * `Lax`, not `Strict`: a visitor who follows a link from another site needs the cookie on the next request.
 * `path` ends with `/`.
 */
export function shareCookie(
  token: string,
  { path, isEncrypted }: { readonly path: string; readonly isEncrypted: boolean },
): string {
  const secure = isEncrypted ? "; Secure" : "";
  return `${SHARE_COOKIE}=${token}; Path=${path}; Max-Age=${MAX_AGE_SECONDS}; HttpOnly; SameSite=Lax${secure}`;
}
