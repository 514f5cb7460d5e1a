//! Applications that are measured: Python files in `benches/apps/`, which travel inside the
//! program.

use std::fs;
use std::path::{Path, PathBuf};

use crate::BenchError;
use crate::measures::Measure;
use crate::results::{Group, Unit};

/// The files, with the one that is started first.
const FILES: [(&str, &str); 9] = [
    ("participant.py", include_str!("../../../benches/apps/participant.py")),
    ("models.py", include_str!("../../../benches/apps/models.py")),
    ("first_tensor.py", include_str!("../../../benches/apps/first_tensor.py")),
    ("resnet_inference.py", include_str!("../../../benches/apps/resnet_inference.py")),
    ("resnet_training.py", include_str!("../../../benches/apps/resnet_training.py")),
    ("linear.py", include_str!("../../../benches/apps/linear.py")),
    ("llama.py", include_str!("../../../benches/apps/llama.py")),
    ("cupy_elementwise.py", include_str!("../../../benches/apps/cupy_elementwise.py")),
    ("jax_callback.py", include_str!("../../../benches/apps/jax_callback.py")),
];

/// The measures that each process takes. Processes of the same framework are one, since imports
/// take long.
pub(crate) struct Process {
    /// The modules.
    pub(crate) modules: &'static [&'static str],
    /// Their measures; the measure `app.X` is asked for as `X`.
    pub(crate) measures: &'static [(&'static str, &'static str)],
}

/// Started anew for each turn, since what is measured happens once in a process. The first measure
/// is asked for; its turn has values for both.
pub(crate) const FIRST: Process = Process {
    modules: &["first_tensor"],
    measures: &[
        ("app.first_tensor", "PyTorch: first tensor after import"),
        (
            "app.first_layers",
            "PyTorch: first matrix product and convolution after that (cuBLAS, cuDNN)",
        ),
    ],
};

/// Live through all of their turns.
pub(crate) const STEADY: [Process; 3] = [
    Process {
        modules: &["resnet_inference", "resnet_training", "linear", "llama"],
        measures: &[
            ("app.resnet_inference", "ResNet-50 inference, batch 1 (PyTorch)"),
            ("app.linear_eager", "20 linear layers, eager (PyTorch)"),
            ("app.linear_graph", "20 linear layers as a CUDA graph (PyTorch)"),
            ("app.resnet_training", "ResNet-50 training step, batch 64, bf16 autocast (PyTorch)"),
            (
                "app.llama",
                "generation with a Llama of a billion parameters, each token (transformers)",
            ),
        ],
    },
    Process {
        modules: &["cupy_elementwise"],
        measures: &[("app.cupy", "x * 2 + 1 on a million floats (CuPy)")],
    },
    Process {
        modules: &["jax_callback"],
        measures: &[("app.jax_callback", "step with a host callback (JAX)")],
    },
];

/// The measures of a process, described.
pub(crate) fn measures(process: &Process) -> Vec<Measure> {
    let described =
        |(id, title): &(&str, &str)| Measure::new(*id, *title, Unit::Time, Group::Applications);
    process.measures.iter().map(described).collect()
}

/// Writes the files into a folder and returns the one to start.
pub(crate) fn unpack(folder: &Path) -> Result<PathBuf, BenchError> {
    let cannot = || format!("cannot write to {}", folder.display());
    fs::create_dir_all(folder).map_err(BenchError::system(cannot()))?;
    for (name, text) in FILES {
        fs::write(folder.join(name), text).map_err(BenchError::system(cannot()))?;
    }
    Ok(folder.join(FILES[0].0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_and_measure_is_there() {
        for process in STEADY.iter().chain([&FIRST]) {
            for module in process.modules {
                let file = FILES.iter().find(|(name, _)| *name == format!("{module}.py"));
                assert!(file.is_some(), "{module}");
            }
            for (id, _) in process.measures {
                let name = id.strip_prefix("app.").unwrap();
                let quoted = format!("\"{name}\"");
                assert!(
                    FILES.iter().any(|(_, text)| text.contains(&quoted)),
                    "{id} is in one of the files"
                );
            }
        }
    }
}
