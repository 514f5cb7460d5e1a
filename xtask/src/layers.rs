//! The modules of `outboard-front` know each other in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::util::root;

/// The modules, lowest first: each imports only from the layers before its own, not from its own.
const LAYERS: &[&[&str]] = &[
    &["gone"],
    &[
        "addresses",
        "checkpoint",
        "coredump",
        "device",
        "errors",
        "host_call",
        "integrity",
        "profile",
        "recent",
        "storage",
        "variables",
    ],
    &["backend", "handles", "logs", "refusals"],
    &["border", "fault", "image", "several", "visible"],
    &["jit"],
    &["parts"],
    &["process"],
    &["dropped", "entry", "peer", "state"],
    &["context", "proc_address", "vmm"],
    &["array", "event", "function", "green", "link", "memory", "reference"],
    &[
        "copy",
        "ipc",
        "launch_attributes",
        "launch_check",
        "managed",
        "memory_operations",
        "module",
        "occupancy",
        "order",
        "texture",
    ],
    &["library"],
    &["graph"],
    &["capture"],
    &["pool", "stream"],
    &["collectives", "copy_queue", "launch", "spread"],
    &["ending", "files"],
    &["calls"],
    &["tables"],
];

/// Not modules of a family: the list of modules, what is generated, and tests.
const APART: &[&str] = &["lib", "generated", "tests"];

/// Which other modules each module imports.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let folder = root().join("crates/outboard-front/src");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&folder).expect("the front has sources").flatten() {
        let path = entry.path();
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        if !APART.contains(&name.as_str()) {
            collect(&path, true, found.entry(name).or_default());
        }
    }
    let modules: BTreeSet<String> = found.keys().cloned().collect();
    for (name, of) in &mut found {
        of.retain(|other| other != name && modules.contains(other));
    }
    found
}

/// Adds what the file or folder imports. `outermost`: its parent is the crate itself.
fn collect(path: &Path, outermost: bool, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder can be listed").flatten() {
            collect(&entry.path(), outermost && entry.file_name() == "mod.rs", found);
        }
        return;
    }
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // Tests stand last, and may use whatever they test with.
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join(" ");
    for start in ["crate::", "super::"].into_iter().filter(|start| outermost || *start == "crate::")
    {
        code.split(start).skip(1).for_each(|behind| found.extend(first_names(behind)));
    }
}

/// The first names of the paths behind `crate::`: one, or those of a list in braces.
fn first_names(behind: &str) -> Vec<String> {
    let name = |text: &str| {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    let Some(list) = behind.strip_prefix('{') else { return vec![name(behind)] };
    let (mut names, mut depth, mut at_start) = (Vec::new(), 1, true);
    for (index, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => at_start = true,
            letter if at_start && !letter.is_whitespace() => {
                names.push(name(&list[index..]));
                at_start = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

#[test]
fn modules_of_the_front_import_only_from_lower_layers() {
    let imports = imports();
    let mut listed: Vec<&str> = LAYERS.iter().flat_map(|layer| layer.iter().copied()).collect();
    listed.sort_unstable();
    assert_eq!(
        imports.keys().collect::<Vec<_>>(),
        listed,
        "every module of the front has one place in the layers"
    );
    let layer_of = |module: &str| LAYERS.iter().position(|layer| layer.contains(&module));
    let mut wrong = Vec::new();
    for (module, of) in &imports {
        for other in of {
            if layer_of(other) >= layer_of(module) {
                wrong.push(format!("{module} may not import {other}, which is not below it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imports_are_read_from_all_forms() {
    assert_eq!(first_names("stream::find(process)"), ["stream"]);
    assert_eq!(
        first_names("{event, graph::{model, node}, stream::find}; crate::x"),
        ["event", "graph", "stream"]
    );
}
