// The switch of automatic compaction of one session, and the setting that it overrides.

import { attribute, h, say } from "./dom.js";
import { STRATEGIES } from "./providers.js";
import { t } from "./words.js";

const VALUES = ["follow", "on", "off"];
// Why the switch has no effect.
const OFF = ["window_unknown", "running"];

export class AutoSwitch {
  #off = null;

  // Calls `chosen(value)` when the user changes it.
  constructor(chosen) {
    this.why = h("p", { id: "auto-why", class: "quiet", hidden: true });
    this.strategy = h("p", { class: "quiet", hidden: true });
    // A switch without effect keeps the focus and its position.
    const hold = (event) => this.#off && event.preventDefault();
    this.switches = VALUES.map((value) => {
      const input = h("input", {
        type: "radio",
        name: "auto",
        value,
        onclick: hold,
        onchange: () => chosen(value),
      });
      const words = h("span", {});
      return { value, input, words, element: h("label", {}, input, words) };
    });
    this.element = h(
      "fieldset",
      {},
      h("legend", {}, t("auto")),
      this.switches.map((it) => it.element),
      this.why,
      this.strategy,
    );
  }

  // Shows the value of a session.
  show(report) {
    const off = report.auto_compact_off ?? null;
    this.#off = off;
    this.why.hidden = off === null;
    if (off !== null) say(this.why, t(OFF.includes(off) ? `auto_${off}` : "auto_none"));
    attribute(this.element, "aria-describedby", off && "auto-why");
    for (const { value, input } of this.switches) {
      input.checked = report.auto_compact === value;
      attribute(input, "aria-disabled", off && "true");
    }
  }

  // Shows the setting, which arrives later.
  tell(settings) {
    const state = settings && t(settings.auto ? "on" : "off");
    for (const { value, words } of this.switches) {
      if (value !== "follow") say(words, t(`auto_${value}`));
      else say(words, state ? t("auto_follow", { state }) : t("auto_follow_plain"));
    }
    const strategy = settings?.strategy;
    this.strategy.hidden = !STRATEGIES.includes(strategy);
    if (this.strategy.hidden) return;
    const [name, why] = [t(`strategy_${strategy}`), t(`strategy_${strategy}_why`)];
    say(this.strategy, t("auto_strategy", { name, why }));
  }
}
