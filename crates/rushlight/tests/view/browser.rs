//! The page in headless Chromium, driven by the DevTools protocol over a pipe.
//!
//! `RUSHLIGHT_UI_PICTURES=DIR` makes the test write pictures of every view there, for inspection.

use crate::support::*;
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A browser, or `None` with the reason printed.
fn chromium() -> Option<String> {
    let named = std::env::var("RUSHLIGHT_CHROMIUM").ok().filter(|path| !path.is_empty());
    let names = ["chromium", "chromium-browser", "google-chrome"].map(String::from);
    let found = named.into_iter().chain(names).find(|name| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    });
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "Chromium is missing: scripts/chromium installs it");
        println!("skipped: no Chromium; scripts/chromium installs it");
    }
    found
}

struct Browser {
    child: Child,
    /// Closing it ends the browser.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    /// Errors of the page: exceptions, and errors or warnings in its log.
    errors: Vec<String>,
    _profile: Folder,
}

impl Browser {
    fn start(program: &str, name: &str) -> Self {
        let profile = Folder::new(&format!("profile-{name}"));
        let mut command = Command::new("bash");
        // The protocol uses descriptors 3 and 4. A hanging browser is killed, and the test fails.
        command.args([
            "-c",
            "exec timeout -s KILL 150 \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null",
            "chromium",
            program,
        ]);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"]);
        command.arg(format!("--user-data-dir={}", profile.0.display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bash");
        let (to, from) = (child.stdin.take().expect("a pipe"), BufReader::new(child.stdout.take().expect("a pipe")));
        let mut browser =
            Self { child, to: Some(to), from, calls: 0, session: None, errors: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let session = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = session["sessionId"].as_str().map(String::from);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    fn call(&mut self, method: &str, parameters: Json) -> Json {
        let answer = self.ask(method, parameters);
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    /// The answer to a call, an error included.
    fn ask(&mut self, method: &str, parameters: Json) -> Json {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let to = self.to.as_mut().expect("a pipe");
        to.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        loop {
            let mut bytes = Vec::new();
            let read = self.from.read_until(0, &mut bytes).expect("an answer");
            assert!(read > 0, "the browser ended in {method}");
            let answer: Json = serde_json::from_slice(&bytes[..bytes.len() - 1]).expect("JSON");
            if answer["id"] == self.calls {
                return answer;
            }
            let serious = match answer["method"].as_str() {
                Some("Runtime.exceptionThrown") => true,
                Some("Log.entryAdded") => answer["params"]["entry"]["level"] == "error",
                Some("Runtime.consoleAPICalled") => {
                    ["error", "warning"].contains(&answer["params"]["type"].as_str().unwrap_or(""))
                }
                _ => false,
            };
            if serious {
                self.errors.push(answer["params"].to_string());
            }
        }
    }

    /// The value of an expression in the page.
    fn value(&mut self, expression: &str) -> Json {
        let answer = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    fn until(&mut self, expression: &str) {
        let deadline = std::time::Instant::now() + WATCHDOG / 2;
        loop {
            // A page that is being left or opened cannot answer.
            let question = json!({"expression": expression, "returnByValue": true});
            if self.ask("Runtime.evaluate", question)["result"]["result"]["value"] == true {
                return;
            }
            let text = "document.body ? document.body.innerText.slice(0, 2000) : ''";
            let page = self.ask("Runtime.evaluate", json!({"expression": text, "returnByValue": true}));
            assert!(
                std::time::Instant::now() < deadline,
                "in vain: {expression}; errors {:?}; page {page}",
                self.errors
            );
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Opens a view at a size.
    fn open(&mut self, server: &Server, hash: &str, [width, height]: [u32; 2], scheme: &str) {
        let mobile = width < 500;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
        self.call("Page.navigate", json!({"url": "about:blank"}));
        self.call("Page.navigate", json!({"url": format!("http://localhost:{}/#{hash}", server.port)}));
        let tab = hash.split("tab=").nth(1).and_then(|rest| rest.split('&').next()).unwrap_or("curves");
        self.until(&format!("!!document.body && document.body.dataset.drawn === '{tab}' && document.querySelectorAll('#runs li').length >= 3"));
        assert_eq!(
            self.value("document.documentElement.scrollWidth <= innerWidth"),
            true,
            "{hash} at {width} scrolls sideways"
        );
        if let Some(folder) = std::env::var_os("RUSHLIGHT_UI_PICTURES") {
            std::thread::sleep(Duration::from_millis(500));
            let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
            let name = format!("{tab}-{width}-{scheme}.b64");
            let _ = std::fs::create_dir_all(&folder);
            let _ =
                std::fs::write(std::path::Path::new(&folder).join(name), picture["data"].as_str().unwrap_or_default());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.to = None;
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while matches!(self.child.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_view_is_drawn() {
    let Some(program) = chromium() else { return };
    let folder = Folder::new("browser");
    make_runs(&folder.0);
    let server = Server::start(&folder.0, &[], &[]);
    server.runs();
    let mut page = Browser::start(&program, "views");
    let (desktop, phone) = ([1280, 900], [390, 800]);

    page.open(&server, "", desktop, "light");
    page.until("document.querySelectorAll('[data-chart=\"loss\"] path.curve').length === 4");
    assert_eq!(
        page.value(
            "[...document.querySelectorAll('path.curve')].every(p => !/NaN|Infinity/.test(p.getAttribute('d')))"
        ),
        true
    );
    assert_eq!(page.value("document.querySelectorAll('[data-chart=\"loss\"] .nonfinite').length"), 10);
    assert_eq!(page.value("document.querySelector('#runs').textContent.includes('<img src=x')"), true, "shown as text");
    // A deselected run has no curve; the address contains the selection.
    page.value("document.querySelector('#runs input').click()");
    page.until(
        "document.querySelectorAll('[data-chart=\"loss\"] path.curve').length === 3 && location.hash.includes('hide=')",
    );
    page.value("document.querySelector('#runs input').click()");
    page.value("document.querySelector('[data-setting=logY]').click()");
    page.until("document.querySelector('[data-setting=logY]').getAttribute('aria-pressed') === 'true'");
    page.until("document.querySelectorAll('[data-chart=\"loss\"] path.curve').length === 4");
    let before = page.value("document.querySelector('[data-chart=\"loss\"] path.curve').getAttribute('d')");
    for axis in ["time", "epoch"] {
        page.value(&format!("const x = document.querySelector('[data-setting=x]'); x.value = '{axis}'; x.dispatchEvent(new Event('change')); 0").replace("const x", "var x"));
        page.until(&format!("location.hash.includes('x={axis}') && document.querySelector('[data-chart=\"val/loss\"] path.curve').getAttribute('d').length > 20"));
    }
    assert_ne!(page.value("document.querySelector('[data-chart=\"loss\"] path.curve').getAttribute('d')"), before);
    // New data appears by itself.
    let path = folder.0.join("run-1/metrics.jsonl");
    let mut file = std::fs::OpenOptions::new().append(true).open(path).expect("the file");
    file.write_all(b"{\"step\":300,\"epoch\":4,\"time\":1700001300,\"appeared\":1}\n").expect("a row");
    page.until("!!document.querySelector('[data-chart=\"appeared\"]')");

    page.open(&server, "tab=compare", desktop, "dark");
    page.until("document.querySelectorAll('#compare tbody tr').length === 4 && document.querySelectorAll('#parallel path.curve').length === 3");
    assert_eq!(
        page.value("document.querySelector('#compare tbody td').textContent"),
        "run-1",
        "sorted by the least val/loss"
    );
    page.value("document.querySelectorAll('#compare th')[1].click()");
    page.until("document.querySelector('#compare tbody td').textContent === 'run-2'");
    assert_eq!(page.value("document.querySelectorAll('.effects .card').length"), 3);

    page.open(&server, "tab=system", desktop, "light");
    page.until("document.querySelectorAll('[data-chart=\"system/cpu_percent\"] path.curve').length === 3");
    page.open(&server, "tab=ranks", desktop, "light");
    page.until("document.querySelectorAll('tr[data-rank]').length === 4 && document.querySelectorAll('tr[data-rank=\"2\"] td.odd').length === 1");
    page.until("document.querySelectorAll('[data-chart=\"system/steps_per_second\"] path.curve').length === 4");
    page.open(&server, "tab=distributions", desktop, "dark");
    page.until("document.querySelectorAll('.ridges path').length === 10");
    page.open(&server, "tab=images", desktop, "light");
    page.until("[...document.querySelectorAll('.gallery img')].some(i => i.complete && i.naturalWidth === 8)");
    page.open(&server, "tab=audio", desktop, "light");
    page.until("[...document.querySelectorAll('.gallery audio')].some(a => Math.abs(a.duration - 0.1) < 0.01)");
    page.open(&server, "tab=prCurves", desktop, "dark");
    page.until("document.querySelectorAll('[data-chart=\"cats\"] path.curve').length === 1 && !!document.querySelector('.under input')");
    page.value("var slider = document.querySelector('.under input'); slider.value = 0; slider.dispatchEvent(new Event('input')); 0");
    page.until("document.querySelector('.under').textContent.endsWith('step 0')");
    page.open(&server, "tab=checkpoints", desktop, "light");
    page.until("document.querySelectorAll('#checkpoints tbody tr').length === 3");
    let rows = page.value("[...document.querySelectorAll('#checkpoints tbody tr')].map(r => [...r.cells].slice(2, 6).map(c => c.textContent).join(' '))");
    assert_eq!(rows, json!(["150 3 val_loss 0.125 0.1", "100 2 0.25 0.1", "50 1 0.5 0.1"]));
    page.value("document.querySelectorAll('#checkpoints th')[4].click()");
    page.until("document.querySelector('#checkpoints tbody tr').cells[2].textContent === '150'");
    page.open(&server, "tab=texts", desktop, "light");
    page.until("document.querySelectorAll('.text .markdown p').length === 10 && document.querySelector('.text .markdown').textContent.startsWith('<script>')");
    page.open(&server, "tab=models", desktop, "light");
    page.until("document.querySelectorAll('.model svg .node').length === 11 && document.querySelectorAll('.model svg .edge').length === 10");
    let first = "document.querySelector('.model .weighted')";
    assert_eq!(
        page.value(&format!("{first}.textContent.includes('conv2d') && {first}.textContent.includes('stem.0')")),
        true
    );
    assert_eq!(
        page.value("[...document.querySelectorAll('.model .shape')].some(t => t.textContent === '[batch, 8, 16, 16]')"),
        true
    );
    // Boxes lie beside each other, not over each other, and the styles reach the picture.
    assert_eq!(
        page.value(
            "(all => all.every((a, i) => all.slice(i + 1).every(b => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top)))\
             ([...document.querySelectorAll('.model .node rect')].map(r => r.getBoundingClientRect()))"
        ),
        true
    );
    assert_eq!(page.value("getComputedStyle(document.querySelector('.model .edge')).fill"), "none");
    assert_eq!(page.value("document.querySelector('.card .warning').textContent.includes('zip archive')"), true);
    page.open(&server, "tab=logs", desktop, "dark");
    page.until("document.querySelector('.log pre').textContent.includes('<b>not bold</b>')");
    page.value("document.querySelector('#runs .info').click()");
    page.until("document.querySelector('dialog[open] h1') !== null");
    assert_eq!(page.value("document.querySelector('dialog').scrollTop"), 0, "the dialog opens at its beginning");

    // Back returns to the tab before.
    page.open(&server, "", desktop, "light");
    page.value("document.querySelector('[data-tab=compare]').click()");
    page.until("document.body.dataset.drawn === 'compare' && location.hash.includes('tab=compare')");
    assert_eq!(page.value("document.querySelector('#compare').textContent.includes('NaN')"), false);
    page.value("history.back()");
    page.until(
        "document.body.dataset.drawn === 'curves' && !!document.querySelector('[data-chart=\"loss\"] path.curve')",
    );
    // A chart is saved as a table and as a picture with its styles.
    page.value(
        "window.saved = []; URL.createObjectURL = (blob) => { blob.text().then((text) => saved.push(text)); return '#saved'; }; \
         document.querySelectorAll('[data-chart=\"val/loss\"] [data-save]').forEach((button) => button.click())",
    );
    page.until("saved.length === 3");
    let saved = page.value("saved");
    assert!(saved[0].as_str().is_some_and(|text| text.starts_with("run,step,value\nrun-0,1,0.1\n")), "{saved}");
    assert!(saved[1].as_str().is_some_and(|text| text.starts_with("<svg") && text.contains("run-2")), "{saved}");
    assert!(saved[2].as_str().is_some_and(|text| text[..8].contains("PNG")), "{saved}");

    // A phone: nothing is wider than the screen, and the list of runs is folded.
    for tab in [
        "curves",
        "compare",
        "system",
        "ranks",
        "distributions",
        "images",
        "audio",
        "prCurves",
        "checkpoints",
        "models",
        "texts",
        "logs",
    ] {
        page.open(&server, &format!("tab={tab}"), phone, "light");
        assert_eq!(page.value("document.getElementById('runs-panel').open"), false);
        // The chosen tab is in sight.
        page.until("(tab => tab.left >= 0 && tab.right <= innerWidth + 1)(document.querySelector('[aria-selected=true]').getBoundingClientRect())");
    }
    assert_eq!(
        page.value("document.pwned === undefined && document.querySelectorAll('main script, aside img').length === 0"),
        true
    );
    assert!(page.errors.is_empty(), "{:#?}", page.errors);
}

/// Of many runs the newest are shown first; all on request.
#[test]
fn many_runs_are_shown_a_few_at_first() {
    let Some(program) = chromium() else { return };
    let folder = Folder::new("browser-many");
    for i in 0..30 {
        let rows: String =
            (0..20).map(|step| format!("{{\"step\":{step},\"time\":{},\"loss\":{i}}}\n", 1000 * i + step)).collect();
        write(&folder.0.join(format!("run-{i}/metrics.jsonl")), &rows);
    }
    // As SummaryWriter.add_hparams writes it: a part of run-29.
    write(&folder.0.join("run-29/1700000000.25/metrics.jsonl"), "{\"step\":0,\"time\":29000,\"loss\":1}\n");
    let server = Server::start(&folder.0, &[], &[]);
    server.runs();
    let mut page = Browser::start(&program, "many");
    page.open(&server, "", [1280, 900], "light");
    page.until("document.getElementById('run-count').textContent === '10 of 30'");
    page.until("document.querySelectorAll('[data-chart=\"loss\"] path.curve').length === 10");
    assert_eq!(
        page.value(
            "!!document.querySelector('path[data-run=run-29]') && !document.querySelector('path[data-run=run-3]')"
        ),
        true
    );
    page.value("document.getElementById('runs-all').click()");
    page.until("document.querySelectorAll('[data-chart=\"loss\"] path.curve').length === 30");
    let colours = "new Set([...document.querySelectorAll('[data-chart=\"loss\"] path.curve')].map((p) => p.getAttribute('stroke'))).size";
    assert_eq!(page.value(colours), 30, "every run has a colour of its own");
    let ticks = "document.querySelectorAll('[data-chart=\"loss\"] text[text-anchor=middle]').length > 1";
    assert_eq!(page.value(ticks), true, "one tick shows no scale");
    page.value("document.querySelector('[data-tab=compare]').click()");
    page.until("document.querySelectorAll('#compare tbody tr').length === 31");
    assert!(page.errors.is_empty(), "{:#?}", page.errors);
}

#[test]
fn the_page_asks_for_a_token() {
    const TOKEN: &str = "a-token-for-the-browser";
    let Some(program) = chromium() else { return };
    let folder = Folder::new("browser-token");
    make_runs(&folder.0);
    let server = Server::start(&folder.0, &["--token"], &[("RUSHLIGHT_UI_TOKEN", TOKEN)]);
    let mut page = Browser::start(&program, "token");
    page.call("Page.navigate", json!({"url": format!("http://localhost:{}/", server.port)}));
    page.until("!!document.querySelector('input[name=token]')");
    page.value(
        "document.querySelector('input[name=token]').value = 'wrong'; setTimeout(() => document.forms[0].submit())",
    );
    page.until("document.body && document.body.innerText.includes('This is not the token')");
    page.value(&format!(
        "document.querySelector('input[name=token]').value = '{TOKEN}'; setTimeout(() => document.forms[0].submit())"
    ));
    page.until("!!document.body && document.querySelectorAll('path.curve').length > 0");
    assert_eq!(page.value("location.href.includes('token')"), false, "the token leaves the address");
}

#[test]
fn runs_are_grouped_pinned_and_noted() {
    let Some(program) = chromium() else { return };
    let folder = Folder::new("browser-notes");
    make_runs(&folder.0);
    write(&folder.0.join("run-1/status.json"), "{\"state\":\"failed\",\"reason\":\"out of <memory>\",\"time\":1}");
    let server = Server::start(&folder.0, &[], &[]);
    server.runs();
    let mut page = Browser::start(&program, "notes");
    let desktop = [1280, 900];

    // Two of the runs share a kind, one has another, one has none.
    page.open(&server, "group=kind", desktop, "light");
    page.until("document.querySelectorAll('[data-chart=\"loss\"] path.curve').length === 3");
    assert_eq!(page.value("document.querySelectorAll('[data-chart=\"loss\"] path.range').length"), 3);
    page.value("document.querySelector('[data-chart=\"val/loss\"] .pin').click()");
    page.until("document.querySelector('.group summary').textContent.startsWith('★ pinned')");
    page.open(&server, "", desktop, "light");
    page.until("document.querySelector('.group [data-chart]')?.dataset.chart === 'val/loss'");

    assert_eq!(
        page.value("document.querySelector('#runs .state.failed').title"),
        "ended with an error: out of <memory>"
    );
    let info = "[...document.querySelectorAll('#runs li')].find((li) => li.textContent.includes('run-0'))";
    page.value(&format!("{info}.querySelector('.info').click()"));
    page.until("document.querySelector('dialog[open] textarea') !== null");
    page.value(
        "document.querySelector('dialog textarea').value = '**better** <img src=x onerror=\"document.pwned = 1\">'",
    );
    page.value("document.querySelector('dialog input').value = 'baseline, long'");
    page.value("document.querySelector('dialog .notes button').click()");
    page.until("document.querySelector('dialog .markdown strong')?.textContent === 'better'");
    assert_eq!(page.value("document.querySelectorAll('dialog .markdown img').length"), 0);
    page.until(&format!("{info}.querySelectorAll('.tag').length === 2"));
    let kept = std::fs::read_to_string(folder.0.join("run-0/notes.json")).expect("notes");
    assert!(kept.contains("**better**") && kept.contains("\"baseline\""), "{kept}");

    // The same page as a file.
    let file = folder.0.join("all.html");
    let made = Command::new(PROGRAM).args(["ui", "--export"]).arg(&file).arg(&folder.0).status();
    assert!(made.expect("the program").success());
    page.call("Page.navigate", json!({"url": format!("file://{}#group=kind", file.display())}));
    page.until("document.querySelector('#live').textContent === 'saved'");
    page.until("document.querySelectorAll('[data-chart=\"loss\"] path.range').length === 3");
    assert_eq!(page.value("document.pwned === undefined"), true);
}
