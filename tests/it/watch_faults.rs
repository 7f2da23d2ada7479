//! Watches that fail, as the field reports tell it: whatever the API server does, the snapshot is the cluster's state in the end, and never
//! an empty one because something failed.

mod bench;

use std::time::Duration;

use discovery::Timing;
use discovery::fact::Kind as Watched;
use loadtest::standin::{Kind, StandIn};
use tests::Outcome;
use tests::poll::{PATIENCE, eventually};

use bench::{Bench, Cut, KINDS, NAMESPACE, Verb, pod, serving, timing};

/// Short enough to be reached by a watch that says nothing.
fn impatient() -> Timing {
    Timing { idle: Duration::from_millis(300), ..timing() }
}

#[tokio::test]
async fn deleted_while_the_watch_was_gone_and_its_version_expired_in_band() -> Outcome<()> {
    let bench = Bench::serving().await?;
    bench.blind(Cut::Reset).await?;
    bench.remove("r0")?;
    bench.server.store().expire();
    bench.server.faults().heal();
    bench.until_serving(&["r1"]).await?;
    assert_eq!(bench.lists(Kind::Pod), 2, "by a new list, since the event is lost");
    Ok(())
}

#[tokio::test]
async fn deleted_while_the_watch_was_gone_and_its_version_expired_by_status() -> Outcome<()> {
    let bench = Bench::serving().await?;
    bench.blind(Cut::Reset).await?;
    bench.remove("r0")?;
    bench.server.store().expire();
    bench.server.faults().heal();
    bench.server.faults().expiry_by_status(true);
    bench.until_serving(&["r1"]).await?;
    assert_eq!(bench.lists(Kind::Pod), 2);
    Ok(())
}

#[tokio::test]
async fn an_open_watch_that_expires_is_followed_by_a_list() -> Outcome<()> {
    let bench = Bench::serving().await?;
    bench.server.faults().cut_watches(Cut::Expired);
    for kind in KINDS {
        bench.until_activity(kind, "a second list", |counts| counts.lists == 2).await?;
    }
    bench.until_watching().await?;
    bench.remove("r1")?;
    bench.until_serving(&["r0"]).await?;
    Ok(())
}

#[tokio::test]
async fn a_dropped_watch_goes_on_from_where_it_was() -> Outcome<()> {
    for cut in [Cut::Reset, Cut::Clean] {
        let bench = Bench::serving().await?;
        bench.blind(cut).await?;
        bench.remove("r0")?;
        bench.replica(2, "127.1.0.3")?;
        bench.server.faults().heal();
        bench.until_serving(&["r1", "r2"]).await?;
        assert_eq!(KINDS.map(|kind| bench.lists(kind)), [1, 1, 1], "{cut:?}: no list was needed");
    }
    Ok(())
}

#[tokio::test]
async fn a_watch_that_goes_quiet_is_noticed() -> Outcome<()> {
    let bench = Bench::serving_with(impatient()).await?;
    bench.server.faults().silence_open_watches();
    bench.remove("r0")?;
    bench.until_serving(&["r1"]).await?;
    Ok(())
}

#[tokio::test]
async fn watches_that_stay_quiet_do_not_blind_while_lists_work() -> Outcome<()> {
    let bench = Bench::serving_with(impatient()).await?;
    bench.server.faults().quiet_watches(true);
    bench.remove("r0")?;
    bench.until_serving(&["r1"]).await?;
    bench.replica(0, "127.1.0.1")?;
    bench.until_serving(&["r0", "r1"]).await?;
    Ok(())
}

#[tokio::test]
async fn bookmarks_keep_the_version_young() -> Outcome<()> {
    let bench = Bench::serving().await?;
    // Changes that this gateway does not see make its last event old.
    pod(&bench.server, "elsewhere", 0, "nobody", "127.1.0.9")?;
    let sent = bench.server.activity().of(Kind::Service).bookmarks;
    bench.until_activity(Kind::Service, "bookmarks after the change", |counts| counts.bookmarks > sent + 1).await?;
    bench.server.store().expire();
    let opened = bench.server.activity().of(Kind::Service).opened;
    bench.server.faults().cut_watches(Cut::Clean);
    bench.until_activity(Kind::Service, "a new watch", |counts| counts.open == 1 && counts.opened > opened).await?;
    let before = bench.last_sign();
    eventually(PATIENCE, "news of every kind", || async { if bench.last_sign() > before { Ok(()) } else { Err("none".to_owned()) } })
        .await?;
    assert_eq!(bench.lists(Kind::Service), 1, "the bookmark's version is not too old");
    Ok(())
}

#[tokio::test]
async fn lists_that_fail_never_empty_the_snapshot() -> Outcome<()> {
    let bench = Bench::serving().await?;
    bench.server.faults().refuse(Verb::List, None, 500);
    bench.server.faults().cut_watches(Cut::Expired);
    for kind in Watched::ALL {
        bench.until_watch(kind, "failed lists", |watch| watch.lists_failed >= 3 && watch.last_error.is_some()).await?;
    }
    assert_eq!(serving(&bench.discovery.snapshots.load()).len(), 2);
    bench.remove("r1")?;
    bench.server.faults().heal();
    bench.until_serving(&["r0"]).await?;
    bench.until_watch(Watched::Pod, "no error any longer", |watch| watch.last_error.is_none()).await?;
    Ok(())
}

#[tokio::test]
async fn nothing_is_published_before_every_kind_is_listed() -> Outcome<()> {
    let server = StandIn::start().await?;
    server.faults().refuse(Verb::List, Some(Kind::Service), 503);
    let bench = Bench::start(server, timing()).await?;
    bench.until_watch(Watched::Pod, "the list of Pods", |watch| watch.listed).await?;
    bench.until_watch(Watched::Service, "failed lists of Services", |watch| watch.lists_failed >= 3).await?;
    assert!(!bench.status().synced);
    assert_eq!(bench.discovery.snapshots.load().generation, 0);
    bench.server.faults().heal();
    bench.until_serving(&["r0", "r1"]).await?;
    eventually(PATIENCE, "readiness", || async { if bench.status().synced { Ok(()) } else { Err("not synced".to_owned()) } }).await?;
    Ok(())
}

#[tokio::test]
async fn a_missing_right_is_named() -> Outcome<()> {
    for (verb, kind, watched, expect) in [
        (Verb::List, Kind::Pod, Watched::Pod, "not allowed to list pods in namespace a"),
        (Verb::Watch, Kind::Service, Watched::Service, "not allowed to watch services in namespace a"),
        (Verb::List, Kind::ModelDeployment, Watched::Deployment, "not allowed to list modeldeployments.worker.gpustack.ai in namespace a"),
    ] {
        let server = StandIn::start().await?;
        server.faults().refuse(verb, Some(kind), 403);
        let bench = Bench::start(server, timing()).await?;
        let report = bench.until_watch(watched, "the refusal", |watch| watch.denied.is_some()).await?;
        let problem = report.problem().unwrap_or_default();
        assert!(problem.starts_with(expect), "{problem}");
        bench.server.faults().heal();
        bench.until_serving(&["r0", "r1"]).await?;
        bench.until_watch(watched, "no refusal any longer", |watch| watch.denied.is_none()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_relist_forgets_what_went_meanwhile() -> Outcome<()> {
    let mut bench = Bench::serving().await?;
    bench.blind(Cut::Reset).await?;
    bench.recreate_deployment()?;
    bench.server.store().expire();
    bench.server.faults().heal();
    bench.until("nothing of the old deployment", |snapshot| serving(snapshot).is_empty()).await?;
    bench.remove("r0")?;
    bench.replica(0, "127.1.0.4")?;
    let snapshot = bench.until_serving(&["r0"]).await?;
    assert_eq!(serving(&snapshot)["r0"], "http://127.1.0.4:8000");
    Ok(())
}

#[tokio::test]
async fn the_last_snapshot_serves_on_while_the_api_server_is_gone() -> Outcome<()> {
    let bench = Bench::serving().await?;
    let before = bench.discovery.snapshots.load();
    bench.server.faults().gone(true);
    for kind in Watched::ALL {
        bench.until_watch(kind, "an error", |watch| watch.last_error.is_some()).await?;
    }
    let heard = bench.last_sign();
    let restarts = |report: &discovery::status::WatchReport| report.watch_restarts;
    let tried = bench.status().watches[&(NAMESPACE.into(), Watched::Pod)].watch_restarts;
    bench.until_watch(Watched::Pod, "further tries", |watch| restarts(watch) > tried + 5).await?;
    assert_eq!(bench.last_sign(), heard, "no sign of life: the view's age grows");
    assert!(bench.status().problem().is_some() && bench.status().synced);
    let after = bench.discovery.snapshots.load();
    assert_eq!(serving(&after), serving(&before));
    bench.remove("r1")?;
    bench.server.faults().gone(false);
    bench.until_serving(&["r0"]).await?;
    bench.until_heard_after(heard).await
}

#[tokio::test]
async fn an_address_that_another_pod_took_over_gets_nothing() -> Outcome<()> {
    let bench = Bench::serving().await?;
    bench.blind(Cut::Reset).await?;
    bench.remove("r0")?;
    pod(&bench.server, "stranger", 0, "another-owner", "127.1.0.1")?;
    bench.server.faults().heal();
    let snapshot = bench.until_serving(&["r1"]).await?;
    assert_eq!(serving(&snapshot)["r1"], "http://127.1.0.2:8000");
    Ok(())
}

#[tokio::test]
async fn a_successor_at_the_same_address_is_another_incarnation() -> Outcome<()> {
    let bench = Bench::serving().await?;
    let id = |snapshot: &discovery::snapshot::Snapshot| {
        let mut groups = snapshot.pools.values().flat_map(|pool| &pool.groups);
        groups.find(|group| group.ordinal == Some(0)).map(|group| group.id.clone())
    };
    let before = id(&bench.discovery.snapshots.load());
    bench.blind(Cut::Reset).await?;
    bench.remove("r0")?;
    bench.replica(0, "127.1.0.1")?;
    bench.server.store().expire();
    bench.server.faults().heal();
    let after = bench.until("another incarnation", |snapshot| id(snapshot) != before && serving(snapshot).len() == 2).await?;
    assert_eq!(serving(&after)["r0"], "http://127.1.0.1:8000", "the same name and address");
    Ok(())
}

#[tokio::test]
async fn hours_of_expiries_and_drops_do_not_wear_it_out() -> Outcome<()> {
    let bench = Bench::serving().await?;
    // One round stands for the few minutes that a real watch lives.
    for round in 0..60 {
        let cut = [Cut::Clean, Cut::Expired, Cut::Reset][round % 3];
        let up = round % 2 == 1;
        bench.blind(cut).await?;
        bench.ready("r0", up)?;
        if round % 4 < 2 {
            bench.server.store().expire();
        }
        bench.server.faults().heal();
        bench.until_serving(if up { &["r0", "r1"] } else { &["r1"] }).await?;
        bench.until_watching().await?;
    }
    for kind in Watched::ALL {
        bench.until_watch(kind, "no error", |watch| watch.last_error.is_none()).await?;
    }
    Ok(())
}
