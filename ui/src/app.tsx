/** The frame around every page: sidebar, page, announcements. */

import { useRef } from "react";
import type { ReactNode } from "react";
import { ChatPage } from "./chat/chat-page";
import { InspectPage } from "./inspect/inspect-page";
import { go, useRoute } from "./route";
import { Announcer } from "./shell/announcer";
import { Sidebar } from "./shell/sidebar";
import { useShortcuts } from "./shell/shortcuts";
import { useDrawer } from "./shell/use-drawer";

export function App(): ReactNode {
  const route = useRoute();
  const drawer = useDrawer();
  const search = useRef<HTMLInputElement>(null);
  useShortcuts({
    search: () => {
      drawer.open();
      search.current?.focus();
      // A closed drawer cannot take the focus, so this tries again when it is open.
      requestAnimationFrame(() => search.current?.focus());
    },
    newChat: () => {
      drawer.close();
      go({ type: "new" });
    },
  });
  return (
    <div className={drawer.isOpen ? "app drawer-open" : "app"}>
      <a className="skip-link" href="#main">
        Skip to conversation
      </a>
      <Sidebar
        route={route}
        isOpen={drawer.isOpen}
        onClose={drawer.close}
        searchRef={search}
        drawerRef={drawer.ref}
      />
      {drawer.isOpen && <div className="scrim" onClick={drawer.close} />}
      <main id="main" tabIndex={-1} inert={drawer.isOpen}>
        {route.type === "inspect" ? (
          <InspectPage key={route.generationId} generationId={route.generationId} onMenu={drawer.open} />
        ) : (
          <ChatPage id={route.type === "conversation" ? route.id : null} onMenu={drawer.open} />
        )}
      </main>
      <Announcer />
    </div>
  );
}
