//! The driver API as described in `api/`: facts joined with meaning.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// A symbol as the headers declare it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fact {
    base: String,
    since: u32,
    #[serde(default)]
    flavour: Flavour,
    params: Vec<(String, String)>,
}

/// Which default stream a null stream handle means.
#[derive(Deserialize, Clone, Copy, Default, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Flavour {
    /// The legacy one.
    #[default]
    Legacy,
    /// `_ptds`: the function has no stream argument; the per-thread one.
    Ptds,
    /// `_ptsz`: a null stream argument is the per-thread one.
    Ptsz,
}

/// How a function is done.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tier {
    /// Written once in `outboard-front`, over the backend of each driver library.
    Front,
    /// Returns `CUDA_ERROR_NOT_SUPPORTED`.
    Unsupported,
}

/// What a call costs the client.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Class {
    /// Answered from shadow state.
    Local,
    /// Queued; failure is found out later.
    Posted,
    /// One round trip.
    Call,
    /// Moves memory, on lanes of its own when large.
    Bulk,
}

/// What people say of a function.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meaning {
    tier: Tier,
    class: Option<Class>,
    /// Why it is not supported.
    why: Option<String>,
    /// Some back end has it all the same.
    #[serde(default)]
    backend: bool,
    /// The test programs that use it.
    #[serde(default)]
    tests: Vec<String>,
}

/// A function: one ABI, with its default-stream flavours.
pub(crate) struct Function {
    /// Exported name, without flavour.
    pub(crate) name: String,
    pub(crate) base: String,
    /// Whether `cuda.h` declares it, rather than the headers for graphics and profiling.
    pub(crate) in_cuda_h: bool,
    /// The file in `api/driver/` it stands in, and the module that implements it.
    pub(crate) family: String,
    pub(crate) params: Vec<(String, String)>,
    /// Flavour to exported symbol and the CUDA version that introduced it.
    pub(crate) symbols: BTreeMap<Flavour, (String, u32)>,
    pub(crate) tier: Tier,
    pub(crate) class: Option<Class>,
    pub(crate) why: String,
    /// It is not supported, but the front asks the back end, which may have it.
    pub(crate) backend: bool,
    pub(crate) tests: Vec<String>,
}

impl Function {
    /// What the implementation must be told besides the C arguments: name and type.
    pub(crate) fn extra(&self) -> Option<(&'static str, &'static str)> {
        if self.base == "cuGetProcAddress" {
            // The addresses are those of the library that exports them.
            Some(("table", "&'static [Entry]"))
        } else if self.symbols.len() > 1
            && !self.params.is_empty()
            && !self.params.iter().any(|(_, ty)| ty == "CUstream")
        {
            // No argument says which default stream is meant.
            Some(("default", "DefaultStream"))
        } else {
            None
        }
    }

    /// `name: type, ...` of the C function.
    pub(crate) fn signature(&self) -> String {
        self.params
            .iter()
            .map(|(name, ty)| format!("{}: {ty}", snake(name)))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// `name, ...` of the C function's arguments.
    pub(crate) fn arguments(&self) -> String {
        self.params.iter().map(|(name, _)| snake(name)).collect::<Vec<_>>().join(", ")
    }
}

/// A parameter's name in our style.
pub(super) fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut last_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && last_lower {
            out.push('_');
        }
        last_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(c.to_ascii_lowercase());
    }
    if ["type", "mod", "ref", "fn", "loop", "match"].contains(&out.as_str()) {
        format!("r#{out}")
    } else {
        out
    }
}

/// The whole API.
pub(crate) struct Api {
    /// By name.
    pub(crate) functions: Vec<Function>,
}

impl Api {
    pub(crate) fn read(root: &Path) -> Result<Api> {
        let mut facts: BTreeMap<String, (bool, Fact)> = BTreeMap::new();
        for (in_cuda_h, file) in [(true, "driver-13.0.toml"), (false, "interop.toml")] {
            let text = std::fs::read_to_string(root.join("api/facts").join(file))?;
            let read: BTreeMap<String, Fact> =
                toml::from_str(&text).with_context(|| format!("api/facts/{file}"))?;
            facts.extend(read.into_iter().map(|(symbol, fact)| (symbol, (in_cuda_h, fact))));
        }
        let mut meanings: BTreeMap<String, (String, Meaning)> = BTreeMap::new();
        let mut files: Vec<_> =
            std::fs::read_dir(root.join("api/driver"))?.collect::<std::io::Result<Vec<_>>>()?;
        files.sort_by_key(std::fs::DirEntry::path);
        for file in files {
            let path = file.path();
            let family = path
                .file_stem()
                .and_then(|s| s.to_str())
                .context("odd file name in api/driver")?
                .to_owned();
            let text = std::fs::read_to_string(&path)?;
            let table: BTreeMap<String, Meaning> =
                toml::from_str(&text).with_context(|| path.display().to_string())?;
            for (name, meaning) in table {
                if let Some((other, _)) = meanings.get(&name) {
                    bail!("{name} stands in both {other}.toml and {family}.toml");
                }
                meanings.insert(name, (family.clone(), meaning));
            }
        }

        let mut functions: BTreeMap<String, Function> = BTreeMap::new();
        for (symbol, (in_cuda_h, fact)) in facts {
            let name = symbol.trim_end_matches("_ptds").trim_end_matches("_ptsz").to_owned();
            let entry = match functions.entry(name.clone()) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    let (family, meaning) = meanings
                        .remove(&name)
                        .with_context(|| format!("{name} has no entry in api/driver/"))?;
                    if meaning.tier == Tier::Unsupported && meaning.why.is_none() {
                        bail!("{name} is unsupported without a reason (`why`)");
                    }
                    if meaning.tier == Tier::Front && meaning.class.is_none() {
                        bail!("{name} has no class");
                    }
                    entry.insert(Function {
                        name,
                        base: fact.base,
                        in_cuda_h,
                        family,
                        params: fact.params,
                        symbols: BTreeMap::new(),
                        tier: meaning.tier,
                        class: meaning.class,
                        why: meaning.why.unwrap_or_default(),
                        backend: meaning.backend,
                        tests: meaning.tests,
                    })
                }
            };
            entry.symbols.insert(fact.flavour, (symbol, fact.since));
        }
        if let Some(name) = meanings.keys().next() {
            bail!("{name} stands in api/driver/ but no header declares it");
        }
        Ok(Api { functions: functions.into_values().collect() })
    }
}
