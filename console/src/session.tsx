/**
 * Who is signed in, and the page that signs in: with a one-time link, or with a key.
 *
 * Always: the key is sent once and kept nowhere in the page; a link's token leaves the address bar before it
 * is opened.
 */
import type { CallerInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { createContext, type SyntheticEvent, type ReactNode, use, useEffect, useState } from "react";
import { api, grants, onSignedOut, queries, reasonOf } from "./api.ts";
import { accountQuery } from "./data.ts";
import { Button, Cli, ErrorNote, Field, Icon, Loading } from "./ui/parts.tsx";

const CALLER = ["caller"];

interface Session extends CallerInfo {
  /** Whether the key's scopes permit it: what is not permitted is not offered. */
  can(scope: string): boolean;
  signOut(): Promise<void>;
}

const SessionContext = createContext<Session | null>(null);

/** The session of the page; there is one below <SignedIn>. */
export function useSession(): Session {
  const session = use(SessionContext);
  if (session === null) throw new Error("no session: this part is outside of <SignedIn>");
  return session;
}

/** The tenant's account, for keys that may read it. */
export function useAccount() {
  const session = useSession();
  return useQuery({ ...accountQuery, enabled: session.can("machine:read") || session.can("usage:read") });
}

/** The token of a one-time link, taken out of the address. */
function takeLink(): string | null {
  const token = /^#link=([\w-]+)$/.exec(location.hash)?.[1] ?? null;
  if (token !== null) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

const LINK = takeLink();

async function whoIsIt(): Promise<CallerInfo> {
  return await api.getCaller();
}

/** Shows the page to who is signed in, and the sign-in to everybody else. */
export function SignedIn({ children }: { readonly children: ReactNode }) {
  const [link, setLink] = useState(LINK);
  const [refused, setRefused] = useState<unknown>(null);
  const [isOut, setIsOut] = useState(false);
  const caller = useQuery({ queryKey: CALLER, queryFn: whoIsIt, enabled: link === null, retry: false });
  useEffect(() => onSignedOut(() => setIsOut(true)), []);
  useEffect(() => {
    // A link that is pasted into the address of an open page.
    const onHash = (): void => {
      const token = takeLink();
      if (token !== null) setLink(token);
    };
    addEventListener("hashchange", onHash);
    return () => removeEventListener("hashchange", onHash);
  }, []);
  useEffect(() => {
    if (link === null) return;
    api
      .openConsoleLink({ token: link })
      .then(() => {
        queries.clear();
        setIsOut(false);
        setRefused(null);
      }, setRefused)
      .finally(() => setLink(null));
  }, [link]);
  if (link !== null || caller.isPending) return <Loading what="the console" />;
  if (caller.data === undefined || isOut) {
    const enter = async (): Promise<void> => {
      queries.clear();
      await caller.refetch();
      setIsOut(false);
      setRefused(null);
    };
    const isUnreachable = caller.isError && !isOut && refused === null && !isUnauthorized(caller.error);
    return <SignIn error={refused ?? (isUnreachable ? caller.error : null)} enter={enter} />;
  }
  const { data } = caller;
  const session: Session = {
    ...data,
    can: (scope) => grants(data.scopes, scope),
    signOut: async () => {
      await api.deleteConsoleSession();
      queries.clear();
      setIsOut(true);
    },
  };
  return <SessionContext value={session}>{children}</SessionContext>;
}

const isUnauthorized = (error: unknown): boolean =>
  typeof error === "object" && error !== null && "status" in error && error.status === 401;

function SignIn({ error, enter }: { readonly error: unknown; readonly enter: () => Promise<void> }) {
  const [fault, setFault] = useState<string | null>(null);
  const [isBusy, setIsBusy] = useState(false);
  const submit = async (event: SyntheticEvent<HTMLFormElement>): Promise<void> => {
    event.preventDefault();
    const form = event.currentTarget;
    const given = new FormData(form).get("key");
    const key = typeof given === "string" ? given.trim() : "";
    if (!/^[\x21-\x7e]+$/.test(key)) return setFault("paste a key as `flotilla key create` prints it");
    setIsBusy(true);
    setFault(null);
    try {
      await api.createConsoleSession({ headers: { authorization: `Bearer ${key}` } });
      form.reset();
      await enter();
    } catch (failed) {
      setFault(reasonOf(failed));
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <main className="sign-in">
      <title>Sign in · Flotilla</title>
      <div className="brand">
        <img src="/console/icon.svg" alt="" width="40" height="40" />
        <h1>Flotilla</h1>
      </div>
      <p className="dim">Machines and apps on your own hosts.</p>
      <ErrorNote error={error} />
      <form onSubmit={(event) => void submit(event)}>
        <Field label="API key" name="key" type="password" autoComplete="current-password" fault={fault} autoFocus />
        <Button look="main" type="submit" isBusy={isBusy}>
          Sign in
        </Button>
      </form>
      <div className="hint">
        <p className="dim">
          <Icon name="keys" /> Or open a one-time link: this command prints one.
        </p>
        <Cli line="flotilla console" />
      </div>
    </main>
  );
}
