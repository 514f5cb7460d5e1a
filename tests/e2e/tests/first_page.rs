//! The first page of the documentation, word for word: what it tells to type is typed, and does
//! what it says.

use std::path::Path;
use std::process::Command;

use outboard_e2e::{Folder, dist};
use outboard_test_support::ReservedPort;

/// The blocks that are to be typed on any machine.
fn commands(page: &str) -> String {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.collect()
}

#[test]
fn the_first_page_does_what_it_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/five-minutes.md");
    let script = commands(&std::fs::read_to_string(page).expect("the page is there"));
    assert!(
        script.contains("outboard serve")
            && script.contains("outboard doctor")
            && script.contains("outboard run")
    );
    let folder = Folder::create();
    // Somebody else may have the usual port here, so the environment gives another one: the page
    // stays as it is.
    let port = ReservedPort::any();
    let address = format!("127.0.0.1:{}", port.number());
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bash = Command::new("bash");
    bash.args(["-e", "-m", "-c", &script])
        .current_dir(&*folder)
        .env("PATH", format!("{}/bin:{path}", dist().display()));
    bash.env("OUTBOARD_SERVE_LISTEN", &address)
        .env("OUTBOARD_SERVER", &address)
        .env("OUTBOARD_CONFIG", "none");
    bash.env("XDG_RUNTIME_DIR", &*folder)
        .env("XDG_CACHE_HOME", &*folder)
        .env("XDG_STATE_HOME", &*folder);
    let output = bash.output().expect("bash starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = std::fs::read_to_string(folder.join("server.log")).unwrap_or_default();
    assert!(output.status.success(), "{text}{}{log}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("cuInit: 0") && text.contains("1 device: Outboard CPU"), "{text}");
    assert!(
        text.contains("ok    session") && text.contains("1 GB takes"),
        "the doctor says what to expect: {text}"
    );
}
