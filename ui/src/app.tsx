/** The frame around every page: sidebar, page, and what is said aloud. */

import { useCallback, useRef, useState } from "react";
import type { ReactNode } from "react";
import { ChatPage } from "./chat/chat-page";
import { InspectPage } from "./inspect/inspect-page";
import { go, useRoute } from "./route";
import { Announcer } from "./shell/announcer";
import { Sidebar } from "./shell/sidebar";
import { useShortcuts } from "./shell/shortcuts";

export function App(): ReactNode {
  const route = useRoute();
  const [isDrawerOpen, setDrawerOpen] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  const openDrawer = useCallback(() => setDrawerOpen(true), []);
  const closeDrawer = useCallback(() => setDrawerOpen(false), []);
  useShortcuts({
    search: () => {
      setDrawerOpen(true);
      // A closed drawer cannot take the focus: wait until it is open.
      requestAnimationFrame(() => search.current?.focus());
    },
    newChat: () => {
      closeDrawer();
      go({ type: "new" });
    },
  });
  return (
    <div className={isDrawerOpen ? "app drawer-open" : "app"}>
      <a className="skip-link" href="#main">
        Skip to the conversation
      </a>
      <Sidebar route={route} isOpen={isDrawerOpen} onClose={closeDrawer} searchRef={search} />
      {isDrawerOpen && <div className="scrim" onClick={closeDrawer} />}
      <main id="main" tabIndex={-1}>
        {route.type === "inspect" ? (
          <InspectPage key={route.generationId} generationId={route.generationId} onMenu={openDrawer} />
        ) : (
          <ChatPage id={route.type === "conversation" ? route.id : null} onMenu={openDrawer} />
        )}
      </main>
      <Announcer />
    </div>
  );
}
