/**
 * The cookie that holds a share token. Pure.
 *
 * Several may come under the name: a guest of a neighbouring host, or a script, can set one that shadows ours, so each of
 * them is tried, up to a limit.
 */
export const SHARE_COOKIE = "flotilla_share";
/** Browsers keep it no longer than 400 days anyway. */
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
 * `Lax`, not `Strict`: whoever follows a link from elsewhere must have it on the very next request. `path` ends with `/`.
 */
export function shareCookie(
  token: string,
  { path, isEncrypted }: { readonly path: string; readonly isEncrypted: boolean },
): string {
  const secure = isEncrypted ? "; Secure" : "";
  return `${SHARE_COOKIE}=${token}; Path=${path}; Max-Age=${MAX_AGE_SECONDS}; HttpOnly; SameSite=Lax${secure}`;
}
