//! The files of tokens that logins keep, beside the configuration.

use std::path::{Path, PathBuf};

use ring::digest;

use super::Kind;
use crate::config::Setting;
use crate::failure::Failure;

/// The file of the token that a login keeps for a context, or without one.
pub(crate) fn token_file(configuration: &Path, kind: Kind, context: Option<&str>) -> PathBuf {
    let begin = match kind {
        Kind::Server => "token",
        Kind::Pool => "pool-token",
    };
    configuration
        .with_file_name(context.map_or_else(|| begin.to_owned(), |name| format!("{begin}-{name}")))
}

/// The same for a server that has a token of its own. Letters that a name of a file may lack are
/// replaced, so a digest keeps the files of two servers apart.
pub(crate) fn token_file_of(configuration: &Path, server: &str) -> PathBuf {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let plain: String = server.chars().map(plain).collect();
    let digest = digest::digest(&digest::SHA256, server.as_bytes());
    let digits: String = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    configuration.with_file_name(format!("token.{plain}-{digits}"))
}

/// The files of tokens that a login has put into a table, as far as the table still names them.
pub(crate) fn kept_tokens(
    configuration: &Path,
    context: Option<&str>,
    settings: &[Setting],
) -> Vec<PathBuf> {
    let kept = [("token-file", Kind::Server), ("pool-token-file", Kind::Pool)]
        .into_iter()
        .filter_map(|(key, kind)| {
            let file = token_file(configuration, kind, context);
            let is_named =
                settings.iter().any(|one| one.name == key && Path::new(&one.text()) == file);
            (is_named && file.exists()).then_some(file)
        });
    kept.collect()
}

/// Removes a token; the sentence that says so.
pub(crate) fn remove_token(file: &Path) -> Result<String, Failure> {
    std::fs::remove_file(file).map_err(|error| Failure::file("remove", file, &error))?;
    Ok(format!(
        "The token in {} is gone, too; its server knows it until `outboard token revoke` there.",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_login_has_a_file_of_its_own() {
        let file = |server| token_file_of(Path::new("config.toml"), server);
        assert_ne!(file("gpu-1:1"), file("gpu.1:1"));
        let name = file("gpu-1:1").file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with("token.gpu-1-1-"), "{name}");
        let of = |kind, context| token_file(Path::new("/a/config.toml"), kind, context);
        assert_eq!(of(Kind::Server, None), Path::new("/a/token"));
        assert_eq!(of(Kind::Pool, Some("b")), Path::new("/a/pool-token-b"));
    }
}
