/** The frame around every page: sidebar, page, announcements. */

import { lazy, Suspense, useRef } from "react";
import type { ReactNode } from "react";
import { ChatPage } from "./chat/chat-page";
import { go, useRoute } from "./route";
import type { Route } from "./route";
import { Announcer } from "./shell/announcer";
import { Sidebar } from "./shell/sidebar";
import { useShortcuts } from "./shell/shortcuts";
import { useDrawer } from "./shell/use-drawer";

/** Not needed to show a conversation, so a page loads it when it has done that. */
const loadInspector = async () => ({ default: (await import("./inspect/inspect-page")).InspectPage });
const InspectPage = lazy(loadInspector);
const ApprovePage = lazy(async () => ({
  default: (await import("./notifications/approve-page")).ApprovePage,
}));
const OperatePage = lazy(async () => ({ default: (await import("./operate/operate-page")).OperatePage }));
addEventListener("load", () => void loadInspector().catch(() => {}), { once: true });

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
        <Suspense>
          <Page route={route} onMenu={drawer.open} />
        </Suspense>
      </main>
      <Announcer />
    </div>
  );
}

interface PageProps {
  readonly route: Route;
  readonly onMenu: () => void;
}

function Page({ route, onMenu }: PageProps): ReactNode {
  switch (route.type) {
    case "inspect":
      return <InspectPage key={route.generationId} generationId={route.generationId} onMenu={onMenu} />;
    case "operate":
      return <OperatePage onMenu={onMenu} />;
    case "approve":
      return <ApprovePage key={route.id} id={route.id} onMenu={onMenu} />;
    case "new":
      return <ChatPage id={null} onMenu={onMenu} />;
    case "conversation":
      return <ChatPage id={route.id} onMenu={onMenu} />;
  }
}
