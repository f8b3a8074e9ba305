// The one-time link that the start of the proxy prints: `#link=TOKEN`. Its token is taken for a secret of this tab.

import { ask } from "./api.js";
import { keepTab } from "./settings.js";

const FORM = /^#link=([0-9a-f]+)$/;

// Resolves to whether the address was such a link. Throws as `ask` does.
export async function openLink() {
  const token = FORM.exec(location.hash)?.[1];
  if (!token) return false;
  // At once, so that neither the history nor a copied address has it.
  history.replaceState(null, "", "#/");
  const { tab } = await ask("link", { method: "POST", headers: { "x-plimsoll-link": token } });
  keepTab(tab);
  return true;
}
