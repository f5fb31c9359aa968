/**
 * The images that nodes have, and fetching one in advance.
 */
import type { ImageInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { type SyntheticEvent, useState } from "react";
import { api, queries } from "../api.ts";
import { imagesQuery } from "../data.ts";
import { renderBytes } from "../format.ts";
import { useSession } from "../session.tsx";
import { messages, Sheet } from "../ui/dialog.tsx";
import { Button, Cli, CopyButton, Empty, ErrorNote, Field, Loading, PageHead, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const COLUMNS: readonly Column<ImageInfo>[] = [
  { name: "Image", show: ({ reference }) => <strong>{reference}</strong>, by: ({ reference }) => reference },
  { name: "Size", show: ({ size }) => renderBytes(size), by: ({ size }) => size, isNumber: true },
  { name: "Node", show: ({ nodeId }) => nodeId, by: ({ nodeId }) => nodeId },
  {
    name: "Digest",
    show: ({ digest }) => (
      <>
        <code>{digest.slice(0, 19)}</code> <CopyButton text={digest} what="the digest" />
      </>
    ),
    isWide: true,
  },
  { name: "Last used", show: ({ lastUsedAt }) => <Time at={lastUsedAt} />, by: ({ lastUsedAt }) => lastUsedAt ?? "" },
];

export function ImagesPage() {
  const session = useSession();
  const images = useQuery(imagesQuery);
  const [isPulling, setIsPulling] = useState(false);
  return (
    <>
      <title>Images · Flotilla</title>
      <PageHead title="Images">
        {session.can("machine:create") && (
          <Button look="main" icon="download" onClick={() => setIsPulling(true)}>
            Fetch an image
          </Button>
        )}
      </PageHead>
      <ErrorNote error={images.error} retry={() => void images.refetch()} />
      {images.isPending && <Loading what="images" />}
      {images.data !== undefined && (
        <DataTable
          label="Images"
          rows={images.data}
          columns={COLUMNS}
          idOf={({ nodeId, reference, digest }) => `${nodeId} ${reference} ${digest}`}
          sortedBy="Image"
          empty={
            <Empty title="No image yet" cli="flotilla image pull alpine">
              An image is fetched when a machine needs it, or in advance.
            </Empty>
          }
        />
      )}
      <Pull isOpen={isPulling} onClose={() => setIsPulling(false)} />
    </>
  );
}

function Pull({ isOpen, onClose }: { readonly isOpen: boolean; readonly onClose: () => void }) {
  const [reference, setReference] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setIsBusy] = useState(false);
  const submit = async (event: SyntheticEvent): Promise<void> => {
    event.preventDefault();
    setIsBusy(true);
    setError(null);
    try {
      await api.pullImage({ reference });
      await queries.invalidateQueries({ queryKey: ["operations"] });
      messages.add({ title: `${reference} is fetched`, description: "The task panel shows how far it is." });
      onClose();
    } catch (failed) {
      setError(failed);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <Sheet title="Fetch an image" isOpen={isOpen} onClose={onClose}>
      <form className="body" onSubmit={(event) => void submit(event)}>
        <Field
          label="Reference"
          value={reference}
          placeholder="alpine"
          onChange={(event) => setReference(event.target.value)}
          required
        />
        <ErrorNote error={error} />
        <Cli line={`flotilla image pull ${reference || "alpine"}`} />
        <footer>
          <Button onClick={onClose}>Close</Button>
          <Button look="main" type="submit" isBusy={isBusy}>
            Fetch
          </Button>
        </footer>
      </form>
    </Sheet>
  );
}
