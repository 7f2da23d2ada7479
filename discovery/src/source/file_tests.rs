use super::*;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/operator");

fn pod(uid: &str, ip: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  uid: {uid}\n  labels: {{app.kubernetes.io/name: model-deployment}}\nspec: {{}}\nstatus: {{podIP: {ip}}}\n"
    )
}

fn uids(folder: &Folder) -> Vec<String> {
    folder.facts().iter().map(|fact| fact.uid().to_string()).collect()
}

fn ip(folder: &Folder) -> String {
    let facts = folder.facts();
    let [Fact::Pod(pod)] = facts.as_slice() else { panic!("one pod: {facts:?}") };
    pod.ip.as_deref().unwrap_or_default().to_owned()
}

#[test]
fn every_example_is_accepted_and_both_versions_of_a_deployment_are_one_object() {
    let mut folder = Folder::new(Path::new(FIXTURES));
    assert!(folder.read().unwrap());
    assert!(folder.bad_files().is_empty(), "{:?}", folder.bad_files());
    let deployments = folder.facts().into_iter().filter(|fact| fact.kind() == Kind::Deployment).count();
    assert_eq!(deployments, 3, "demo-mh, demo-one, demo-pd");
    assert!(!folder.read().unwrap(), "nothing changed");
}

#[test]
fn a_bad_file_keeps_its_last_good_content_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    let mut folder = Folder::new(dir.path());
    std::fs::write(&path, pod("u1", "10.0.0.1")).unwrap();
    assert!(folder.read().unwrap());
    for (bad, why) in [
        ("metadata: [", "line"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n", "document 1: metadata.uid is missing"),
        ("---\na: 1\n---\napiVersion: v1\nkind: Pod\nmetadata: {uid: x}\nspec: nonsense\n", "document 2"),
    ] {
        std::fs::write(&path, bad).unwrap();
        assert!(!folder.read().unwrap(), "{bad}");
        assert_eq!(uids(&folder), ["u1"], "{bad}");
        let problem = folder.bad_files().remove(&path).unwrap_or_default();
        assert!(problem.contains(why), "{problem}");
    }
    std::fs::write(&path, pod("u2", "10.0.0.2")).unwrap();
    assert!(folder.read().unwrap());
    assert_eq!(uids(&folder), ["u2"]);
    assert!(folder.bad_files().is_empty());
}

#[test]
fn a_file_that_goes_takes_its_objects_along() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.yaml"), pod("a", "10.0.0.1")).unwrap();
    std::fs::write(dir.path().join("b.yml"), pod("b", "10.0.0.1")).unwrap();
    std::fs::write(dir.path().join(".hidden.yaml"), pod("c", "10.0.0.1")).unwrap();
    std::fs::write(dir.path().join("notes.txt"), pod("d", "10.0.0.1")).unwrap();
    let mut folder = Folder::new(dir.path());
    folder.read().unwrap();
    assert_eq!(uids(&folder), ["a", "b"]);
    std::fs::remove_file(dir.path().join("a.yaml")).unwrap();
    assert!(folder.read().unwrap());
    assert_eq!(uids(&folder), ["b"]);
}

#[test]
fn of_two_files_the_later_name_wins() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("1.yaml"), pod("u", "10.0.0.1")).unwrap();
    std::fs::write(dir.path().join("2.yaml"), pod("u", "10.0.0.2")).unwrap();
    let mut folder = Folder::new(dir.path());
    folder.read().unwrap();
    assert_eq!(ip(&folder), "10.0.0.2");
}

#[test]
fn the_watched_version_wins_over_the_aggregated_one() {
    let deployment = |version: &str, model: &str| {
        format!(
            "apiVersion: worker.gpustack.ai/{version}\nkind: ModelDeployment\nmetadata: {{name: d, uid: u}}\nspec: {{model: {{name: {model}}}}}\n---\n"
        )
    };
    for text in [deployment("v1alpha1", "right") + &deployment("v1", "wrong"), deployment("v1", "wrong") + &deployment("v1alpha1", "right")]
    {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.yaml"), text).unwrap();
        let mut folder = Folder::new(dir.path());
        folder.read().unwrap();
        let facts = folder.facts();
        let [Fact::Deployment(fact)] = facts.as_slice() else { panic!("one deployment") };
        assert_eq!(&*fact.model, "right");
    }
}

#[test]
#[cfg(unix)]
fn a_swapped_link_is_a_change_as_in_a_config_map() {
    let dir = tempfile::tempdir().unwrap();
    for (version, ip) in [("v1", "10.0.0.1"), ("v2", "10.0.0.2")] {
        std::fs::create_dir(dir.path().join(version)).unwrap();
        std::fs::write(dir.path().join(version).join("a.yaml"), pod("u", ip)).unwrap();
    }
    let data = dir.path().join("..data");
    std::os::unix::fs::symlink("v1", &data).unwrap();
    std::os::unix::fs::symlink("..data/a.yaml", dir.path().join("a.yaml")).unwrap();
    let mut folder = Folder::new(dir.path());
    folder.read().unwrap();
    assert_eq!(ip(&folder), "10.0.0.1");
    std::fs::remove_file(&data).unwrap();
    std::os::unix::fs::symlink("v2", &data).unwrap();
    assert!(folder.read().unwrap());
    assert_eq!(ip(&folder), "10.0.0.2");
}
