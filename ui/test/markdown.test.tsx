import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import { Markdown } from "../src/markdown/markdown";

const html = (text: string, isStreaming = false): string =>
  renderToStaticMarkup(<Markdown text={text} isStreaming={isStreaming} />);

describe("text from a model is never more than text", () => {
  it.each([
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "a <b onmouseover=alert(1)>word</b>",
    "<!-- <img src=x onerror=alert(1)> -->",
    "<div>\n\n<iframe src=https://evil.example></iframe>\n\n</div>",
    "<style>*{display:none}</style>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "- <form action=https://evil.example><input></form>",
    "| <img src=x onerror=alert(1)> |\n|---|\n| <script>alert(1)</script> |",
    "`<img src=x>` and ``` <script> ```",
  ])("%s", (text) => {
    const out = html(text);
    expect(out).not.toMatch(/<(?:script|img|svg (?!class)|iframe|style|form|b |input(?! type="checkbox"))/i);
    expect(out).not.toMatch(/<[^>]+\son\w+=/i);
  });

  it.each([
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](javascript&#58;alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x)",
    "[x](file:///etc/passwd)",
    "[x](//evil.example)",
    "[x](/v1/conversations)",
    "<javascript:alert(1)>",
    "[x][y]\n\n[y]: javascript:alert(1)",
  ])("%s is no link", (text) => {
    expect(html(text)).not.toContain("<a ");
  });

  it("links lead only to their address, without a referrer", () => {
    expect(html("[x](https://example.org/a?b=1&c=2)")).toContain(
      '<a href="https://example.org/a?b=1&amp;c=2" target="_blank" rel="noopener noreferrer nofollow" title="https://example.org/a?b=1&amp;c=2">x</a>',
    );
    expect(html("<https://example.org>")).toContain('href="https://example.org/"');
  });

  it("pictures are links", () => {
    const out = html("![a cat](https://example.org/cat.png) ![](javascript:1)");
    expect(out).not.toContain("<img");
    expect(out).toContain('<a href="https://example.org/cat.png"');
    expect(out).toContain("Image</span>");
  });

  it("bidirectional controls are shown by code point", () => {
    for (const text of [
      "a\u202eb",
      "`a\u202eb`",
      "```\na\u202eb\n```",
      "a&#x202E;b",
      "[a\u2066b](https://example.org)",
    ]) {
      const out = html(text);
      expect(out).not.toMatch(/[\u202a-\u202e\u2066-\u2069]/);
      expect(out).toMatch(/⟨U\+20/);
    }
  });
});

describe("Markdown", () => {
  it("renders as people expect", () => {
    const out = html(
      "# T\n\n**b** *i* ~~d~~ `c` &amp; &lt;\n\n- [x] done\n- [ ] open\n\n3. three\n\n> q\n\n---\n\n| a |\n|:-:|\n| 1 |",
    );
    expect(out).toContain("<h2");
    expect(out).toContain("<strong>b</strong> <em>i</em> <del>d</del> <code>c</code> &amp; &lt;");
    expect(out).toContain('<input type="checkbox" disabled="" aria-label="Task" checked=""/>');
    expect(out).toContain('<ol start="3">');
    expect(out).toContain("<blockquote");
    expect(out).toContain("<hr/>");
    expect(out).toContain('<td style="text-align:center">1</td>');
  });

  it("renders while it streams, at every length", () => {
    const text =
      "# T\n\nSome **bold** and [a link](https://example.org).\n\n- a\n- b\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n```js\nlet a = '<b>';\n```\n\nend";
    for (let end = 0; end <= text.length; end += 1) {
      const out = html(text.slice(0, end), true);
      expect(out).not.toContain("**");
      expect(out).not.toContain("](");
      expect(out).not.toContain("|--");
    }
  });

  it.each([
    ["quotes in quotes", ">".repeat(50_000)],
    ["lists in lists", "- ".repeat(20_000)],
    ["open brackets", "[".repeat(50_000)],
    ["links in links", "[a](".repeat(12_000)],
    ["emphasis", "*a **a ".repeat(8_000)],
    ["underscores", "_a".repeat(20_000)],
    ["ticks", "`a``b```".repeat(6_000)],
    ["angles", "<a ".repeat(16_000)],
    ["backslashes", "\\".repeat(50_000)],
    ["bars", "|a".repeat(25_000)],
    ["addresses", "http://a.".repeat(6_000)],
    ["mail", "a@a.".repeat(12_000)],
    ["spaces", `a${" ".repeat(50_000)}b`],
    ["lines of spaces", " \n".repeat(25_000)],
    ["one line", "x".repeat(1_000_000)],
  ])("of a hostile kind does not hold up the page: %s", (_name, text) => {
    const begin = performance.now();
    html(text);
    html(text, true);
    expect(performance.now() - begin).toBeLessThan(2_500);
  });
});
