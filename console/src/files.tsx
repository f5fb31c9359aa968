/**
 * The files of a machine: browse, upload, download, edit small texts, remove.
 *
 * Always: a file's content is never shown as a page of this origin: it is downloaded, or text in an editor.
 */
import type { FileEntry } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { type DragEvent, lazy, Suspense, useMemo, useRef, useState } from "react";
import { api, queries } from "./api.ts";
import { plain, renderBytes, shellWord } from "./format.ts";
import { attempt, Confirm } from "./ui/dialog.tsx";
import { Button, Cli, Empty, ErrorNote, Icon, Loading, Time } from "./ui/parts.tsx";
import { type Column, DataTable } from "./ui/table.tsx";

const Editor = lazy(async () => ({ default: (await import("./editor.tsx")).Editor }));
const EDITED_BYTES_MAX = 1024 * 1024;

interface FilesProps {
  readonly machineId: string;
  readonly name: string;
  readonly path: string;
  readonly setPath: (path: string) => void;
}

const joined = (directory: string, name: string): string => `${directory.replace(/\/+$/, "")}/${name}`;

const filesQuery = (machineId: string, path: string) => ({
  queryKey: ["files", machineId, path],
  queryFn: async ({ signal }: { signal: AbortSignal }) => {
    const answer = await api.readFile(machineId, { query: { path, list: true }, signal });
    return (await answer.json()) as readonly FileEntry[];
  },
});

export function FilesPane({ machineId, name, path, setPath }: FilesProps) {
  const listed = useQuery(filesQuery(machineId, path));
  const [edited, setEdited] = useState<string | null>(null);
  const [removed, setRemoved] = useState<FileEntry | null>(null);
  const [sent, setSent] = useState<string | null>(null);
  const [isOver, setIsOver] = useState(false);
  const chooser = useRef<HTMLInputElement>(null);
  const again = () => queries.invalidateQueries({ queryKey: ["files", machineId, path] });
  const upload = async (files: readonly File[]): Promise<void> => {
    for (const file of files) {
      setSent(file.name);
      await attempt(`Upload of ${file.name}`, () => api.putFileAt(machineId, joined(path, file.name), file));
    }
    setSent(null);
    await again();
  };
  const onDrop = (event: DragEvent): void => {
    event.preventDefault();
    setIsOver(false);
    void upload([...event.dataTransfer.files]);
  };
  const columns = useMemo(
    () =>
      columnsOf({
        path,
        setPath,
        edit: setEdited,
        remove: setRemoved,
        urlOf: (at) => `/v1/machines/${machineId}/files?path=${encodeURIComponent(at)}`,
      }),
    [machineId, path, setPath],
  );
  if (edited !== null)
    return (
      <Suspense fallback={<Loading what="the editor" />}>
        <Editor machineId={machineId} path={edited} close={() => setEdited(null)} />
      </Suspense>
    );
  return (
    <div
      className={isOver ? "files over" : "files"}
      onDragOver={(event) => {
        event.preventDefault();
        setIsOver(true);
      }}
      onDragLeave={() => setIsOver(false)}
      onDrop={onDrop}
    >
      <div className="filters">
        <Crumbs path={path} setPath={setPath} />
        <span className="grow" />
        {sent !== null && <span role="status">Uploading {sent}</span>}
        <input
          ref={chooser}
          type="file"
          multiple
          hidden
          aria-label="Files to upload"
          onChange={(event) => void upload([...(event.target.files ?? [])])}
        />
        <Button icon="upload" isBusy={sent !== null} onClick={() => chooser.current?.click()}>
          Upload
        </Button>
        <Button onClick={() => void again()} isBusy={listed.isFetching}>
          Read again
        </Button>
      </div>
      <ErrorNote error={listed.error} retry={() => void listed.refetch()} />
      {listed.isPending && <Loading what="files" />}
      {listed.data !== undefined && (
        <DataTable
          label={`Files in ${path}`}
          rows={listed.data}
          columns={columns}
          idOf={(entry) => entry.name}
          sortedBy="File"
          empty={<Empty title="This folder is empty">Drop files here to upload them.</Empty>}
        />
      )}
      <Cli line={`flotilla machine cp ./file ${shellWord(`${name}:${joined(path, "")}`)}`} />
      <Confirm
        title={`Remove ${removed?.name ?? ""}?`}
        verb="Remove"
        isOpen={removed !== null}
        onClose={() => setRemoved(null)}
        act={async () => {
          await api.deleteFileAt(machineId, joined(path, removed?.name ?? ""));
          await again();
        }}
      >
        <p>The file is removed from the disk of {name}. A folder is removed only when it is empty.</p>
      </Confirm>
    </div>
  );
}

function Crumbs({ path, setPath }: Pick<FilesProps, "path" | "setPath">) {
  const parts = path.split("/").filter(Boolean);
  return (
    <nav className="crumbs" aria-label="Folder">
      <button type="button" onClick={() => setPath("/")}>
        /
      </button>
      {parts.map((part, index) => (
        <button key={index} type="button" onClick={() => setPath(`/${parts.slice(0, index + 1).join("/")}`)}>
          {plain(part)}
          {index < parts.length - 1 && " /"}
        </button>
      ))}
    </nav>
  );
}

interface Acts {
  readonly path: string;
  readonly setPath: (path: string) => void;
  readonly edit: (path: string) => void;
  readonly remove: (entry: FileEntry) => void;
  readonly urlOf: (path: string) => string;
}

function columnsOf({ path, setPath, edit, remove, urlOf }: Acts): readonly Column<FileEntry>[] {
  return [
    {
      name: "File",
      show: (entry) => (
        <button
          type="button"
          className="link"
          onClick={() =>
            entry.kind === "directory" || entry.kind === "link"
              ? setPath(joined(path, entry.name))
              : edit(joined(path, entry.name))
          }
          disabled={entry.kind === "file" && entry.size > EDITED_BYTES_MAX}
        >
          <Icon name={entry.kind === "directory" ? "folder" : "file"} />
          {plain(entry.name)}
        </button>
      ),
      by: ({ kind, name }) => `${kind === "directory" ? 0 : 1}${name.toLowerCase()}`,
    },
    {
      name: "Size",
      show: ({ kind, size }) => (kind === "file" ? renderBytes(size) : ""),
      by: ({ size }) => size,
      isNumber: true,
    },
    { name: "Mode", show: ({ mode }) => <code>{mode}</code>, isWide: true },
    {
      name: "Changed",
      show: ({ modifiedAt }) => <Time at={modifiedAt} />,
      by: ({ modifiedAt }) => modifiedAt,
      isWide: true,
    },
    {
      name: "Actions",
      show: (entry) => (
        <span className="row-actions">
          {entry.kind === "file" && (
            <a
              className="button quiet small"
              href={urlOf(joined(path, entry.name))}
              download={entry.name}
              aria-label={`Download ${entry.name}`}
            >
              <Icon name="download" />
            </a>
          )}
          <Button look="quiet" aria-label={`Remove ${entry.name}`} icon="close" onClick={() => remove(entry)} />
        </span>
      ),
    },
  ];
}
