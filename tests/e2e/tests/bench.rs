//! `outboard bench` on the software device: whether it measures, not how fast anything is.

use outboard_e2e::{Folder, command, one_line};
use std::path::Path;
use std::process::Output;

fn bench(args: &[&str]) -> Output {
    // When it fails, it keeps its logs.
    let logs = Folder::create();
    let mut command = command();
    command.arg("bench").args(args).env("TMPDIR", &*logs).output().expect("outboard starts")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn everything_has_a_figure_natively_and_through_a_server() {
    let folder = Folder::create();
    let (json, page) = (folder.join("results.json"), folder.join("performance.md"));
    // The question about pointers makes 100,000 allocations first, which takes long without
    // optimisation.
    let only = "launch,sync,stream,event,graph,context,memory,copy,queue.d2h.16.one,queue.both.4,clients.h2d.4,clients.d2h.4,local.device,local.primary,local.kernel,local.capturing,wait,startup,app.cupy";
    let output = bench(&[
        "--driver",
        "cpu",
        "--quick",
        "--transports",
        "tcp,pigeon",
        "--only",
        only,
        "--json",
        json.to_str().expect("a plain path"),
        "--page",
        page.to_str().expect("a plain path"),
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");

    let results: serde_json::Value = serde_json::from_str(&text(&json)).expect("JSON");
    assert_eq!(results["ways"], serde_json::json!(["native", "tcp"]), "no pigeon came");
    let skipped = results["skipped"].to_string();
    assert!(skipped.contains("The transport pigeon was left out"), "{skipped}");
    let measures = results["measures"].as_array().expect("measures");
    assert!(measures.len() > 40, "{}", measures.len());
    for measure in measures.iter().filter(|measure| measure["group"] != "applications") {
        for way in ["native", "tcp"] {
            let series = &measure["ways"][way];
            let rounds = series["rounds"].as_array().expect("rounds");
            assert!(!rounds.is_empty(), "{} {way}: {}", measure["id"], series["missing"]);
            for round in rounds {
                assert!(round["value"].as_f64().is_some_and(|value| value > 0.0), "{measure}");
            }
        }
    }
    let known = |id: &str| measures.iter().any(|measure| measure["id"] == id);
    for id in [
        "queue.d2h.16.one.16M",
        "queue.both.4.16M",
        "clients.h2d.4",
        "clients.d2h.4",
        "copy.registered_file.d2h.1M",
    ] {
        assert!(known(id), "no {id}");
    }
    // What small copies and copies both ways are held against was measured.
    let rounds = |of: &str| results[of].as_array().map_or(0, Vec::len);
    assert!(
        rounds("streams") == 4 && rounds("streams_both") == 4 && rounds("round_trip") == 2,
        "{results}"
    );
    // Who waits uses less than who works; the CPU time of the server is seen.
    let cpu = |id: &str, of: &str| {
        let measure = measures
            .iter()
            .find(|measure| measure["id"] == id)
            .unwrap_or_else(|| panic!("no {id}"));
        let round = &measure["ways"]["tcp"]["rounds"][0];
        round[of].as_f64().expect("a time") / round["seconds"].as_f64().expect("a time")
    };
    assert!(cpu("launch.sync", "client_cpu") > 0.0 && cpu("launch.sync", "server_cpu") > 0.0);
    assert!(cpu("wait.idle", "client_cpu") < 0.5 && cpu("wait.idle", "server_cpu") < 0.5);

    // The processes below the participant count.
    assert!(cpu("clients.h2d.4", "client_cpu") > 0.05, "{}", cpu("clients.h2d.4", "client_cpu"));

    let written = text(&page);
    assert!(
        written.contains("## Targets") && written.contains("≤ round trip + 1.2 × one plain stream"),
        "{written}"
    );
    assert!(
        written.contains("## Targets") && written.contains("performance/copies-pageable.svg"),
        "{written}"
    );
    assert!(text(&folder.join("performance/copies-pageable.svg")).starts_with("<svg"));

    // The same page again from the file.
    std::fs::remove_file(&page).expect("the page is there");
    let paths = [json.to_str().expect("a plain path"), page.to_str().expect("a plain path")];
    let output = bench(&["--from", paths[0], "--page", paths[1]]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text(&page), written);
}

#[test]
fn what_is_wrong_is_said() {
    let complaint = |args: &[&str]| {
        let output = bench(args);
        assert!(!output.status.success(), "{args:?} should not work");
        one_line(&output.stderr)
    };
    let said = complaint(&["--driver", "/nonexistent/libcuda.so.1", "--quick"]);
    assert!(said.contains("the driver library cannot be found"), "{said}");
    let said = complaint(&["--driver", "cpu", "--quick", "--transports", "pigeon"]);
    assert!(said.contains("The transport pigeon was left out"), "{said}");
    let said = complaint(&[
        "--driver",
        "cpu",
        "--quick",
        "--transports",
        "tcp",
        "--only",
        "nonsense",
        "--no-apps",
    ]);
    assert!(said.contains("--only"), "{said}");
}
