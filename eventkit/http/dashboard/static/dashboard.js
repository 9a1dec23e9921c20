// Keeps an open page up to date: when the service says that there is something new, the page is asked for again and what
// has changed in it is replaced, part by part. A part in which somebody types, or has opened a question, is left alone.
"use strict";

(() => {
    const button = document.querySelector("[data-live]");
    if (!button) return;
    let source = null, asking = false, again = false;

    const busy = (part) =>
        part.querySelector("details[open]") || (part.contains(document.activeElement) && document.activeElement.matches("input, textarea"));

    // What has the focus is found again by what it is, since it is another element afterwards.
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

    const look = async () => {
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

    const listen = () => {
        source = new EventSource(button.dataset.live);
        source.onmessage = look;
        source.onopen = () => button.classList.remove("lost");
        source.onerror = () => button.classList.add("lost");
        button.setAttribute("aria-pressed", "true");
    };

    const rest = () => {
        source?.close();
        source = null;
        button.setAttribute("aria-pressed", "false");
    };

    button.hidden = false;
    button.title = "Whether this page follows what happens";
    button.addEventListener("click", () => (source ? rest() : listen()));
    document.addEventListener("visibilitychange", () => { if (!document.hidden && again) look(); });
    addEventListener("pagehide", rest);
    addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
    if (!document.querySelector("#secret")) listen();
})();
