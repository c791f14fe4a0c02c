//! Tells the binary which commit it is of: `SEAWALL_COMMIT` of the build's environment (packages are built from
//! tarballs), else git's, else "unknown".

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=SEAWALL_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let given = std::env::var("SEAWALL_COMMIT").ok();
    let given = given.filter(|commit| !commit.is_empty());
    let commit = given.or_else(of_git).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=SEAWALL_COMMIT={commit}");
}

/// The commit of this tree; not that of a repository that the tree merely lies in.
fn of_git() -> Option<String> {
    let here = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR")?).join(".git");
    if !here.exists() {
        return None;
    }
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        println!("cargo::rerun-if-changed={path}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(words: &[&str]) -> Option<String> {
    let told = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(told.stdout).ok()?;
    (told.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
