//! The file of a kernel: what ipykernel itself would have written, but for how it is started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Prints what an interpreter's ipykernel would write.
pub(super) const ASK: &str =
    "import ipykernel.kernelspec, json; print(json.dumps(ipykernel.kernelspec.get_kernel_dict()))";
/// What `metadata` has of this command: by it the command knows its own kernels.
const MAKER: &str = "outboard";

#[derive(Serialize, Deserialize)]
pub(super) struct Spec {
    argv: Vec<String>,
    display_name: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    metadata: Map<String, Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Spec {
    /// What [`ASK`] has printed.
    pub(super) fn parse(text: &str) -> serde_json::Result<Spec> {
        serde_json::from_str(text)
    }

    /// The same by way of another command, which gets these arguments and variables.
    pub(super) fn started_by(
        self,
        mut argv: Vec<String>,
        display_name: String,
        variables: BTreeMap<String, String>,
    ) -> Spec {
        argv.extend(self.argv);
        // Jupyter replaces `$NAME` in these.
        let plain = |(name, value): (String, String)| (name, value.replace('$', "$$"));
        let env = variables.into_iter().map(plain).collect();
        let mut metadata = self.metadata;
        metadata.insert(MAKER.into(), json!({ "release": env!("CARGO_PKG_VERSION") }));
        let mut others = self.others;
        // SIGINT, which Python makes an exception, and which reaches it through this command.
        others.insert("interrupt_mode".into(), "signal".into());
        Spec { argv, display_name, env, metadata, others }
    }

    /// The kernel of a folder, if this command has made it.
    pub(super) fn read(folder: &Path) -> Option<Spec> {
        let spec = Spec::parse(&std::fs::read_to_string(file(folder)).ok()?).ok()?;
        spec.metadata.contains_key(MAKER).then_some(spec)
    }

    pub(super) fn text(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    pub(super) fn display_name(&self) -> &str {
        &self.display_name
    }

    pub(super) fn argv(&self) -> &[String] {
        &self.argv
    }

    /// What a person would write.
    pub(super) fn command_line(&self) -> String {
        let variables = self.env.iter().map(|(name, value)| format!("{name}={value}"));
        variables.chain(self.argv.iter().cloned()).collect::<Vec<_>>().join(" ")
    }
}

/// The file in a kernel's folder.
pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join("kernel.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ipykernel writes.
    const OWN: &str = r#"{"argv": ["/bin/python", "-m", "ipykernel_launcher"], "display_name": "x",
        "language": "python", "metadata": {"debugger": true}, "kernel_protocol_version": "5.5"}"#;

    #[test]
    fn a_kernel_is_ipykernel_s_own_behind_the_command() {
        let given = [("OUTBOARD_SERVER".to_owned(), "unix:/a$b".to_owned())].into();
        let spec = Spec::parse(OWN).unwrap().started_by(vec!["run".into()], "Far".into(), given);
        let value: Value = serde_json::from_str(&spec.text().unwrap()).unwrap();
        let wanted = json!({
            "argv": ["run", "/bin/python", "-m", "ipykernel_launcher"],
            "display_name": "Far",
            "env": { "OUTBOARD_SERVER": "unix:/a$$b" },
            "interrupt_mode": "signal",
            "kernel_protocol_version": "5.5",
            "language": "python",
            "metadata": { "debugger": true, MAKER: { "release": env!("CARGO_PKG_VERSION") } },
        });
        assert_eq!(value, wanted);
    }

    #[test]
    fn kernels_of_others_are_not_ours() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let own = Spec::parse(OWN).unwrap();
        let spec = own.started_by(Vec::new(), "Far".into(), BTreeMap::new());
        assert!(Spec::read(folder).is_none());
        std::fs::write(file(folder), spec.text().unwrap()).unwrap();
        assert_eq!(Spec::read(folder).map(|spec| spec.display_name), Some("Far".to_owned()));
        for other in ["{", OWN, "{}", "[]"] {
            std::fs::write(file(folder), other).unwrap();
            assert!(Spec::read(folder).is_none(), "{other}");
        }
    }
}
