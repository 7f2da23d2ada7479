//! A headless Chromium, driven over its debugging pipe.
//!
//! Owns: the process and the protocol's framing (JSON, ended by a zero byte). Must not: know pages.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: String,
    next: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts `chromium` (or `$LEADGATE_BROWSER`); the test command installs it.
    pub fn start() -> Self {
        let binary = std::env::var("LEADGATE_BROWSER").unwrap_or_else(|_| "chromium".to_owned());
        let profile = tempfile::tempdir().unwrap();
        // The pipe is descriptors 3 and 4 of the browser; the shell puts our ends there.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 1>&2", &binary, "--headless=new", "--remote-debugging-pipe"]);
        command.args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions"]);
        command.args(["--disable-background-networking", "--hide-scrollbars"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Self { child, to, from, session: String::new(), next: 0, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        attached["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        browser
    }

    /// One call; events on the way are skipped.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("chromium is installed and runs");
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "chromium is installed and runs (set LEADGATE_BROWSER to another binary)");
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == self.next {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Opens a page of this size in this colour scheme.
    pub fn open(&mut self, url: &str, (width, height): (u32, u32), scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.call("Emulation.setEmulatedMedia", json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }));
        self.call("Page.enable", json!({}));
        self.call("Accessibility.enable", json!({}));
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Value of an expression; a promise is awaited.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits in the page until an expression is true, 30 s at most.
    pub fn wait(&mut self, condition: &str) {
        let script = format!(
            "new Promise((done, fail) => {{ const until = Date.now() + 30000; const look = () => {{ let now = false; try {{ now = !!({condition}) }} catch {{}} \
             now ? done(true) : Date.now() > until ? fail(new Error('never: ' + document.body.innerText)) : setTimeout(look, 50) }}; look() }})"
        );
        self.eval(&script);
    }

    /// Presses a key.
    pub fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if key == "Enter" { "\r" } else { "" };
            let code = if key == "Tab" { 9 } else { 13 };
            let params = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// Writes the whole page as a picture into `$LEADGATE_SCREENSHOTS`, if that is set.
    pub fn picture(&mut self, name: &str) {
        let Ok(folder) = std::env::var("LEADGATE_SCREENSHOTS") else { return };
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(Path::new(&folder).join(name), base64(picture["data"].as_str().unwrap())).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |b: u8| match b {
        b'A'..=b'Z' => u32::from(b - b'A'),
        b'a'..=b'z' => u32::from(b - b'a') + 26,
        b'0'..=b'9' => u32::from(b - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut out = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let kept: Vec<_> = four.iter().copied().filter(|b| *b != b'=').collect();
        let bits = kept.iter().fold(0, |bits, b| bits << 6 | digit(*b)) << (6 * (4 - kept.len()));
        out.extend_from_slice(&bits.to_be_bytes()[1..kept.len()]);
    }
    out
}
