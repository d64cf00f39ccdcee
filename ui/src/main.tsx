import { OutlastProvider } from "@outlast/client/react";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { client } from "./client";
import { LoginGate } from "./shell/login";
import { registerServiceWorker } from "./shell/service-worker";
import { UserProvider } from "./user";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/chat.css";
import "./styles/messages.css";
import "./styles/turn.css";
import "./styles/tools.css";
import "./styles/files.css";
import "./styles/composer.css";
import "./styles/login.css";
import "./styles/notifications.css";

const root = document.getElementById("root");
if (root === null) throw new Error("the page has no #root");

createRoot(root).render(
  <StrictMode>
    <OutlastProvider client={client}>
      <LoginGate>
        <UserProvider>
          <App />
        </UserProvider>
      </LoginGate>
    </OutlastProvider>
  </StrictMode>,
);

registerServiceWorker();
