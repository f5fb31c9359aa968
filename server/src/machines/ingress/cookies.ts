/**
 * The cookie that holds a share token. No guest sees it or sets it.
 */
export const SHARE_COOKIE = "flotilla_share";
