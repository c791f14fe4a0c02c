//! `seawall papers DIR`: everything in a package that follows from this binary's own tables.
//!
//! Owns:     which files those are, and their names.
//! Does not: know options or keys; they come from the definition of the command line and from the table of settings.
use super::Verdict;
use crate::cli::Cli;
use crate::config;
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use std::fs;
use std::io;
use std::path::Path;

const NAME: &str = "seawall";

/// Writes all of them below `to`.
pub(crate) fn papers(to: &Path) -> Verdict {
    match write(to) {
        Ok(()) => Verdict::Clean,
        Err(error) => {
            eprintln!("seawall: {}: {error}", to.display());
            Verdict::NotRun
        }
    }
}

fn write(to: &Path) -> io::Result<()> {
    let (man, completions) = (to.join("man"), to.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(<Cli as CommandFactory>::command(), &man)?;
    fs::write(man.join("seawall.properties.5"), config::manual())?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(
            shell,
            &mut <Cli as CommandFactory>::command(),
            NAME,
            &completions,
        )?;
    }
    fs::write(to.join("server.properties"), config::default_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_that_is_shown_has_a_page_and_every_shell_its_completion() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path()).unwrap();
        let names = |folder: &str| -> BTreeSet<String> {
            let entries = fs::read_dir(dir.path().join(folder)).unwrap();
            entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        };
        let mut pages = BTreeSet::from(["seawall.properties.5".to_owned()]);
        pages_of(&<Cli as CommandFactory>::command(), NAME, &mut pages);
        assert_eq!(names("man"), pages);
        assert_eq!(names("completions").len(), 3);
    }

    fn pages_of(command: &clap::Command, name: &str, pages: &mut BTreeSet<String>) {
        pages.insert(format!("{name}.1"));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            pages_of(sub, &format!("{name}-{}", sub.get_name()), pages);
        }
    }
}
