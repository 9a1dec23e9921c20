// Updates an open page: on a signal of the service, the script fetches the page again and replaces the parts that
// changed. It skips parts in which the user types or has opened a confirmation.
"use strict";

(() => {
    const button = document.querySelector("[data-live]");
    if (!button) return;
    let source = null, asking = false, again = false;

    const busy = (part) =>
        part.querySelector("details[open]") || (part.contains(document.activeElement) && document.activeElement.matches("input, textarea"));

    // Updates replace the focused element, so it is found again by its link or label.
    const place = (element) => element.getAttribute("href") || element.getAttribute("aria-label");

    const replace = (fresh) => {
        for (const part of document.querySelectorAll("[data-part]")) {
            const other = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
            if (!other || busy(part) || part.innerHTML === other.innerHTML) continue;
            const active = part.contains(document.activeElement) ? place(document.activeElement) : null;
            const scrolled = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
            part.replaceChildren(...other.childNodes);
            part.querySelectorAll(".scroll").forEach((box, index) => { box.scrollLeft = scrolled[index] || 0; });
            if (active) [...part.querySelectorAll("a, [aria-label]")].find((one) => place(one) === active)?.focus({ preventScroll: true });
        }
    };

    const update = async () => {
        if (asking || document.hidden) { again = true; return; }
        asking = true;
        again = false;
        try {
            const address = new URL(location.href);
            address.searchParams.delete("said");
            address.searchParams.delete("what");
            const answer = await fetch(address, { credentials: "same-origin", cache: "no-store", redirect: "error" });
            if (answer.ok) replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
            button.classList.toggle("lost", !answer.ok);
        } catch {
            button.classList.add("lost");
        } finally {
            asking = false;
        }
    };

    const follow = () => {
        source = new EventSource(button.dataset.live);
        source.onmessage = update;
        source.onopen = () => button.classList.remove("lost");
        source.onerror = () => button.classList.add("lost");
        button.setAttribute("aria-pressed", "true");
    };

    const pause = () => {
        source?.close();
        source = null;
        button.setAttribute("aria-pressed", "false");
    };

    button.hidden = false;
    button.title = "Update this page automatically";
    button.addEventListener("click", () => (source ? pause() : follow()));
    document.addEventListener("visibilitychange", () => { if (!document.hidden && again) update(); });
    addEventListener("pagehide", pause);
    addEventListener("pageshow", (event) => { if (event.persisted) follow(); });
    if (!document.querySelector("#secret")) follow();
})();
