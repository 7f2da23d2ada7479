//! Names that the operator and Kueue give to labels, annotations, finalizers and gates.
//!
//! A list of its own on purpose: the gateway has another one, and a slip in either shows in the tests.

pub(super) const NAME: &str = "app.kubernetes.io/name";
pub(super) const INSTANCE: &str = "app.kubernetes.io/instance";
pub(super) const COMPONENT: &str = "app.kubernetes.io/component";
pub(super) const PART_OF: &str = "app.kubernetes.io/part-of";
pub(super) const RESOURCE_TYPE: &str = "resource.gpustack.ai/type";
pub(super) const ROLE_KIND: &str = "modeldeployment.gpustack.ai/role-kind";
pub(super) const ORDINAL: &str = "modeldeployment.gpustack.ai/pod-ordinal";
pub(super) const MEMBER: &str = "modeldeployment.gpustack.ai/member-index";
pub(super) const ELIGIBLE: &str = "modeldeployment.gpustack.ai/endpoint-eligible";
pub(super) const API_ANSWERING: &str = "modeldeployment.gpustack.ai/api-answering";
pub(super) const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
pub(super) const GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
pub(super) const KUEUE_MANAGED: &str = "kueue.x-k8s.io/managed";

pub(super) const SPEC_HASH: &str = "modeldeployment.gpustack.ai/pod-spec-hash";
pub(super) const GROUP_TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";
pub(super) const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
pub(super) const GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
pub(super) const NOTE_ROLE: &str = "note.gpustack.ai/role";
pub(super) const SCRAPE_PORT: &str = "prometheus.io/port";
pub(super) const SLOTS: &str = "modeldeployment.gpustack.ai/replacement-slots";
pub(super) const RETIREMENT_RETRY: &str = "modeldeployment.gpustack.ai/retirement-retry";
pub(super) const ELIGIBILITY_ACTIVE: &str = "modeldeployment.gpustack.ai/eligibility-active";

pub(super) const POD_FINALIZER: &str = "kueue.x-k8s.io/managed";
pub(super) const DEPLOYMENT_FINALIZER: &str = "gpustack.ai/controlled";
pub(super) const ADMISSION_GATE: &str = "kueue.x-k8s.io/admission";

/// Value of [`NAME`] on everything of a ModelDeployment.
pub(super) const MODEL_DEPLOYMENT: &str = "model-deployment";
/// Value of [`RESOURCE_TYPE`].
pub(super) const MODEL_DEPLOYMENTS: &str = "modeldeployments";
/// The one container that every engine Pod has.
pub(super) const MAIN: &str = "main";
