/**
 * Edits a small text file of a machine.
 *
 * Always: what is not text as UTF-8 is not edited, since it would be changed; a save that is refused loses
 * nothing that was typed.
 */
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { api } from "./api.ts";
import { Button, ErrorNote, Loading } from "./ui/parts.tsx";

interface EditorProps {
  readonly machineId: string;
  readonly path: string;
  readonly close: () => void;
}

export function Editor({ machineId, path, close }: EditorProps) {
  const file = useQuery({
    queryKey: ["file", machineId, path],
    queryFn: async ({ signal }) => {
      const answer = await api.readFile(machineId, { query: { path }, signal });
      return new TextDecoder("utf-8", { fatal: true }).decode(await answer.arrayBuffer());
    },
    gcTime: 0,
    retry: false,
  });
  const isBinary = file.error instanceof TypeError;
  return (
    <div className="editor">
      {file.isPending && <Loading what={path} />}
      {isBinary && <p className="note">{path} is not text; download it to change it.</p>}
      {!isBinary && <ErrorNote error={file.error} />}
      {file.data === undefined ? (
        <Button onClick={close}>Back</Button>
      ) : (
        <Text machineId={machineId} path={path} text={file.data} close={close} />
      )}
    </div>
  );
}

function Text({ machineId, path, text, close }: EditorProps & { readonly text: string }) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const [isChanged, setIsChanged] = useState(false);
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    if (place.current === null) return undefined;
    const onChange = EditorView.updateListener.of(({ docChanged }) => docChanged && setIsChanged(true));
    const look = EditorView.contentAttributes.of({ "aria-label": path });
    const keys = keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]);
    const extensions = [lineNumbers(), history(), keys, onChange, look, EditorView.lineWrapping];
    const editor = new EditorView({ parent: place.current, state: EditorState.create({ doc: text, extensions }) });
    view.current = editor;
    editor.focus();
    return () => editor.destroy();
  }, [text, path]);
  const save = async (): Promise<void> => {
    setIsBusy(true);
    setError(null);
    try {
      await api.putFileAt(machineId, path, view.current?.state.doc.toString() ?? "");
      setIsChanged(false);
    } catch (failed) {
      setError(failed);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <>
      <div className="filters">
        <code className="grow">{path}</code>
        <Button look="main" isBusy={isBusy} disabled={!isChanged} onClick={() => void save()}>
          Save
        </Button>
        <Button onClick={close}>{isChanged ? "Discard" : "Back"}</Button>
      </div>
      <ErrorNote error={error} />
      <div className="editor-text" ref={place} />
    </>
  );
}
