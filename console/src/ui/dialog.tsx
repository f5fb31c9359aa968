/**
 * Dialogs, menus and short messages, on the accessible parts of Base UI.
 */
import { AlertDialog } from "@base-ui/react/alert-dialog";
import { Dialog } from "@base-ui/react/dialog";
import { Menu } from "@base-ui/react/menu";
import { Toast } from "@base-ui/react/toast";
import { type ReactNode, useState } from "react";
import { reasonOf } from "../api.ts";
import { Button, ErrorNote, Icon, type IconName } from "./parts.tsx";

interface SheetProps {
  readonly title: string;
  readonly isOpen: boolean;
  readonly onClose: () => void;
  readonly children: ReactNode;
  readonly isSide?: boolean;
}

/** A dialog over the page, or at its side. */
export function Sheet({ title, isOpen, onClose, children, isSide = false }: SheetProps) {
  return (
    <Dialog.Root open={isOpen} onOpenChange={(open) => !open && onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className="backdrop" />
        <Dialog.Popup className={isSide ? "sheet side" : "sheet"}>
          <header>
            <Dialog.Title render={<h2 />}>{title}</Dialog.Title>
            <Dialog.Close className="button quiet small" aria-label="Close">
              <Icon name="close" />
            </Dialog.Close>
          </header>
          {children}
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

interface ConfirmProps {
  readonly title: string;
  /** What is lost. */
  readonly children: ReactNode;
  readonly verb: string;
  readonly isOpen: boolean;
  readonly onClose: () => void;
  readonly act: () => Promise<unknown>;
}

/** Asks before something is lost, and stays open with the reason when it is refused. */
export function Confirm({ title, children, verb, isOpen, onClose, act }: ConfirmProps) {
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = async (): Promise<void> => {
    setIsBusy(true);
    setError(null);
    try {
      await act();
      onClose();
    } catch (failed) {
      setError(failed);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <AlertDialog.Root open={isOpen} onOpenChange={(open) => !open && onClose()}>
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className="backdrop" />
        <AlertDialog.Popup className="sheet">
          <header>
            <AlertDialog.Title render={<h2 />}>{title}</AlertDialog.Title>
          </header>
          <AlertDialog.Description render={<div className="body" />}>{children}</AlertDialog.Description>
          <ErrorNote error={error} />
          <footer>
            <AlertDialog.Close className="button plain">Cancel</AlertDialog.Close>
            <Button look="danger" isBusy={isBusy} onClick={() => void run()}>
              {verb}
            </Button>
          </footer>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}

export interface MenuEntry {
  readonly name: string;
  readonly icon?: IconName;
  readonly isDanger?: boolean;
  readonly isDisabled?: boolean;
  readonly run: () => void;
}

/** More actions than fit beside each other. */
export function ActionMenu({ label, entries }: { readonly label: string; readonly entries: readonly MenuEntry[] }) {
  if (entries.length === 0) return null;
  return (
    <Menu.Root>
      <Menu.Trigger className="button plain" aria-label={label}>
        <Icon name="more" />
      </Menu.Trigger>
      <Menu.Portal>
        <Menu.Positioner sideOffset={6} align="end" className="above">
          <Menu.Popup className="menu">
            {entries.map(({ name, isDanger, isDisabled, run }) => (
              <Menu.Item key={name} className={isDanger ? "danger" : ""} disabled={isDisabled ?? false} onClick={run}>
                {name}
              </Menu.Item>
            ))}
          </Menu.Popup>
        </Menu.Positioner>
      </Menu.Portal>
    </Menu.Root>
  );
}

export const messages = Toast.createToastManager();

/** Does something that the server answers, and says how it ended where the page does not show it. */
export async function attempt(what: string, act: () => Promise<unknown>): Promise<boolean> {
  try {
    await act();
    return true;
  } catch (error) {
    messages.add({ title: `${what} failed`, description: reasonOf(error), type: "error", priority: "high" });
    return false;
  }
}

export function Messages() {
  return (
    <Toast.Provider toastManager={messages} timeout={8_000}>
      <Toast.Portal>
        <Toast.Viewport className="messages">
          <MessageList />
        </Toast.Viewport>
      </Toast.Portal>
    </Toast.Provider>
  );
}

function MessageList() {
  const { toasts } = Toast.useToastManager();
  return toasts.map((toast) => (
    <Toast.Root key={toast.id} toast={toast} className={`message ${toast.type ?? ""}`}>
      <Toast.Content>
        <Toast.Title render={<strong />} />
        <Toast.Description />
      </Toast.Content>
      <Toast.Close className="button quiet small" aria-label="Dismiss">
        <Icon name="close" />
      </Toast.Close>
    </Toast.Root>
  ));
}
