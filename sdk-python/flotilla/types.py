"""Printed by scripts/generate-python.ts from the contract; not edited by hand.

Change contract/src and run `npm run golden`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union

class AccountInfo(TypedDict):
    tenantId: str
    status: str
    # the tenant's billing time; null: it has no test clock
    testClock: str | None
    plan: PlanInfo | None
    effectiveMaxCpus: int
    effectiveMaxMemoryMb: int
    effectiveMaxMachines: int
    effectiveMaxDiskGb: int
    effectiveMaxTotalCpus: int
    effectiveMaxTotalMemoryMb: int
    effectiveMaxTotalDiskGb: int
    monthlyBudgetMicros: int | None
    # the budget less the cost of the month; what is held is not subtracted
    budgetRemainingMicros: int | None
    # what running machines may still cost until they are checked again, at most 60 s later; 0
    # unless the budget's policy is block or stop
    heldMicros: int
    # what is left of credit after the final invoices
    prepaidCreditMicros: int
    # 0: there is no notice of a low balance
    lowBalanceThresholdMicros: int
    periodUsage: UsageResponse
    periodCost: CostBreakdown


class AdoptRequest(TypedDict, total=False):
    # `keep`: the source stays, under another name; default: it is deleted
    source: Literal["delete", "keep"] | None


class AdoptResponse(TypedDict):
    machine: MachineInfo
    source: MachineInfo | None


class AdvanceTenantRequest(TypedDict):
    # RFC 3339; later than the tenant's billing time, and at most ten years ahead
    to: str


class ApiKeyCreated(TypedDict):
    id: str
    key: str


class ApiKeyInfo(TypedDict):
    id: str
    description: str | None
    scopes: List[str]
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    expiresAt: str | None
    # RFC 3339, UTC, with milliseconds
    lastUsedAt: str | None
    createdBy: str | None


class AppExplanationInstancesItem(TypedDict):
    id: str
    # what it is, and why
    sentence: str


class AppExplanation(TypedDict):
    status: Literal["deploying", "running", "awaitingPromotion", "degraded", "failed", "stopped"]
    waitingFor: str | None
    # what would be done now, each with its reason
    next: List[str]
    instances: List[AppExplanationInstancesItem]
    # instances that failed in a row
    failures: int
    # before then no instance is made, because others failed
    retryAt: str | None
    lastFailure: str | None


class AppInfo(TypedDict):
    id: str
    name: str
    image: str
    # how many instances are asked
    replicas: int
    status: Literal["deploying", "running", "awaitingPromotion", "degraded", "failed", "stopped"]
    port: int
    domain: str | None
    instances: List[InstanceInfo]
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    updatedAt: str
    url: str
    # the release that was rolled out last; null: none was
    release: int | None
    # why it is as it is, where that is not obvious
    message: str | None
    # the key that changed it last, with which its instances are made
    createdBy: str
    rollout: RolloutInfo | None


class _AssignRequest(TypedDict):
    leaseId: str


class AssignRequestFilesItem(TypedDict):
    path: str
    contentB64: str


class AssignRequest(_AssignRequest, total=False):
    task: Any
    files: List[AssignRequestFilesItem] | None
    # written to /run/smol-secrets.json of the clone
    secrets: Dict[str, str] | None
    # default: those of the machine
    ports: List[PortRequest] | None
    # it ends after this long; 0: when its owner says so
    ttlSecs: int | None
    # it ends when its owner is silent for this long; 0: it may be
    heartbeatSecs: int | None


class AssignResponse(TypedDict):
    leaseId: str
    machineId: str
    ownerToken: str
    state: str
    machine: MachineInfo


class AuditChain(TypedDict):
    tenantId: str
    # of the last row; 0: there is none
    sequence: int
    # of the last row; keep it elsewhere to detect a log that was rewritten as a whole
    hash: str


class _AuditEntry(TypedDict):
    # RFC 3339, UTC
    at: str
    requestId: str
    # the first part of the path after `/v1`, and the operationId of this description:
    # `machines.createMachine`; `operator.restore`: an operator restored a backup
    type: str
    # the id that the call named or made
    resource: str | None
    # who called; for the registration of a node `join-token:` with the prefix of its token, or
    # `node:` with its id; `operator` for a restore
    keyId: str
    # of the key
    scopes: List[str]
    # from where the call came
    address: str
    # of the answer; 102: a command, a terminal or a file was sent to the machine and not answered
    # yet; its answer has a row too, with the same `requestId`
    status: int
    # of a refusal
    errorCode: str | None
    tenantId: str
    sequence: int
    # the fields above as the JSON text that was hashed
    record: str
    previousHash: str
    # SHA-256 in hex of previousHash, tenantId, sequence and record, joined by newlines
    hash: str


class AuditEntry(_AuditEntry, total=False):
    # how many refused or failed calls the row is for: a key made more than ten alike in a minute,
    # which ends at `at`. The rest is that of the last one, and `resource` is null if they named
    # several. Absent: one call
    calls: int


class _AuditRecord(TypedDict):
    # RFC 3339, UTC
    at: str
    requestId: str
    # the first part of the path after `/v1`, and the operationId of this description:
    # `machines.createMachine`; `operator.restore`: an operator restored a backup
    type: str
    # the id that the call named or made
    resource: str | None
    # who called; for the registration of a node `join-token:` with the prefix of its token, or
    # `node:` with its id; `operator` for a restore
    keyId: str
    # of the key
    scopes: List[str]
    # from where the call came
    address: str
    # of the answer; 102: a command, a terminal or a file was sent to the machine and not answered
    # yet; its answer has a row too, with the same `requestId`
    status: int
    # of a refusal
    errorCode: str | None


class AuditRecord(_AuditRecord, total=False):
    # how many refused or failed calls the row is for: a key made more than ten alike in a minute,
    # which ends at `at`. The rest is that of the last one, and `resource` is null if they named
    # several. Absent: one call
    calls: int


class BlueGreenStrategy(TypedDict):
    type: Literal["blueGreen"]


class BranchBatchRequest(TypedDict, total=False):
    count: int | None
    # one for each; wins over count
    names: List[MachineName] | None
    # of names such as `web-1`; default: the name of what is branched
    namePrefix: str | None
    # default: those of the machine
    ports: List[PortRequest] | None
    # what branches have of the machine's secret variables: the same values, those of `secretEnv`,
    # or a machine with some is not branched; default: reissue if there is `secretEnv`, otherwise
    # refuse
    secrets: Literal["inherit", "reissue", "refuse"] | None
    # new values, for `reissue`: of each of the machine's secret variables
    secretEnv: Dict[str, str] | None


class _BranchRequest(TypedDict):
    name: MachineName


class BranchRequest(_BranchRequest, total=False):
    # default: those of the machine
    ports: List[PortRequest] | None
    # what branches have of the machine's secret variables: the same values, those of `secretEnv`,
    # or a machine with some is not branched; default: reissue if there is `secretEnv`, otherwise
    # refuse
    secrets: Literal["inherit", "reissue", "refuse"] | None
    # new values, for `reissue`: of each of the machine's secret variables
    secretEnv: Dict[str, str] | None


class CallerInfo(TypedDict):
    # the id of the key
    subject: str
    scopes: List[str]
    tenantId: str
    tenantName: str
    tenantStatus: str
    registryNamespace: str


class _CanaryStrategy(TypedDict):
    type: Literal["canary"]


class CanaryStrategy(_CanaryStrategy, total=False):
    # default: 1
    canaryCount: int | None
    # default: true; false: once the canaries serve, a promotion is awaited
    autoPromote: bool | None


class CancelDrainAnswerReplacement(TypedDict):
    decision: Literal["replaced", "held"]
    # RFC 3339, UTC, with milliseconds
    decidedAt: str
    # why nothing is replaced
    reason: str | None


class CancelDrainAnswerLastError(TypedDict):
    # RFC 3339, UTC, with milliseconds
    at: str
    message: str


class CancelDrainAnswerPressureCpu(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class CancelDrainAnswerPressureMemory(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class CancelDrainAnswerPressureIo(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class CancelDrainAnswerPressure(TypedDict):
    cpu: CancelDrainAnswerPressureCpu
    memory: CancelDrainAnswerPressureMemory
    io: CancelDrainAnswerPressureIo


class CancelDrainAnswer(TypedDict):
    id: str
    # where servers reach the node's agent; `parked:` when it dials out to them
    address: str
    smolvmAddress: str
    # `unreachable`: it does not report, or the server that answers has no connection to it
    status: Literal["ready", "draining", "drained", "unreachable", "revoked"]
    totalCpus: int
    availableCpus: int
    totalMemoryMb: int
    availableMemoryMb: int
    totalDiskGb: int
    availableDiskGb: int
    # facts from the operator and observed ones, such as the accelerator
    labels: Dict[str, str]
    # RFC 3339, UTC, with milliseconds
    registeredAt: str
    # RFC 3339, UTC, with milliseconds
    lastHeartbeatAt: str | None
    # RFC 3339, UTC, with milliseconds
    cordonedAt: str | None
    # since when an operator works on it, so that its absence is expected
    maintenanceAt: str | None
    # what was decided of its machines that can be replaced, since it does not report; null:
    # nothing
    replacement: CancelDrainAnswerReplacement | None
    # of the link between server and nodes; null: it has not reported yet
    linkVersion: int | None
    # the version of its agent; null: it has not said
    release: str | None
    # the last error that its agent has logged since it started; null: none
    lastError: CancelDrainAnswerLastError | None
    # how far its clock was ahead of the server's with its last report; negative: behind
    clockAheadMs: int | None
    # of a node on another host; it is renewed when half of its day has passed
    certificateExpiresAt: str | None
    # machines that it has and that are unknown here, for example after a restore; it keeps them;
    # at most 1000
    unknownMachines: List[str]
    # machines that run in a VMM of another program than the one that is installed on the host,
    # such as an older QEMU; at most 1000; null: not reported
    outdatedVmms: List[str] | None
    runtime: str | None
    usedCpus: float
    usedMemoryMb: int
    usedDiskGb: int
    # how much processes of its host wait for resources (pressure stall information of its
    # kernel); null: not reported
    pressure: CancelDrainAnswerPressure | None
    # the drain that is being canceled; null: none was running
    operationId: str | None


class CheckpointBranchesRequest(TypedDict, total=False):
    count: int | None
    # one for each; wins over count
    names: List[MachineName] | None
    # of names such as `web-1`; default: the name of what is branched
    namePrefix: str | None
    # default: those of the machine
    ports: List[PortRequest] | None


class CheckpointInfo(TypedDict):
    id: str
    name: str | None
    # the machine; it may be gone
    machineId: str
    # its name at that time
    machineName: str | None
    status: Literal["creating", "available", "failed"]
    # why it failed
    error: str | None
    # whether branches continue its processes; otherwise they boot
    hasMemory: bool
    # what it takes on its node beside earlier instants; 0: it is not made yet
    sizeBytes: int
    # the node that has it, where machines from it start
    nodeId: str | None
    # RFC 3339, UTC, with milliseconds
    createdAt: str


class CheckpointRequest(TypedDict, total=False):
    # unique among the tenant's checkpoints
    name: str | None
    # whether its memory is kept too, for which it must be branchable; default: if it runs
    memory: bool | None
    # whether machines from it have the secret variables of the machine; `refuse`: of a machine
    # with some none is made; default: refuse
    secrets: Literal["inherit", "refuse"] | None


class ClusterHealth(TypedDict):
    clusterId: str
    version: str
    nodesTotal: int
    nodesReady: int
    appsTotal: int
    poolsTotal: int
    uptimeSecs: int
    # false: the counts are the last known ones
    databaseUp: bool


class _CompleteLeaseRequest(TypedDict):
    ownerToken: str
    reason: Literal["done", "agent_failed", "infra_failed", "cancelled"]


class CompleteLeaseRequest(_CompleteLeaseRequest, total=False):
    score: float | None
    result: Any


class ConnectToken(TypedDict):
    token: str
    # RFC 3339, UTC, with milliseconds
    expiresAt: str
    machineId: str


class ConsoleLink(TypedDict):
    # to be appended to the server's address; opened once, it signs a browser in
    path: str
    # RFC 3339, UTC, with milliseconds
    expiresAt: str


class ConsoleSession(TypedDict):
    # RFC 3339, UTC, with milliseconds
    expiresAt: str


class CostBreakdown(TypedDict):
    cpuMicros: int
    memoryMicros: int
    # always 0: commands are free
    execMicros: int
    # 0: disks are metered and have no price
    diskMicros: int
    # what machines sent
    egressMicros: int
    # what the tenant had in the registry
    registryMicros: int
    # 0: there is no price per machine
    baseMicros: int
    # 0: plans have no fee
    monthlyFeeMicros: int
    # 0: there are no discounts
    volumeDiscountMicros: int
    # 0: a plan gives no credit
    freeCreditMicros: int
    # 0: credit is applied to the balance
    creditAppliedMicros: int
    # the sum of the lines
    totalMicros: int
    # the total: credit is applied to the balance, when the month is invoiced
    amountDueMicros: int


class CreateApiKeyRequest(TypedDict, total=False):
    description: str | None
    # default: when the creator's key expires, if it does; a key does not outlive its creator's
    # key
    expiresInDays: int | None
    # instead of `expiresInDays`
    expiresInSeconds: int | None
    # default: the creator's
    scopes: List[str] | None
    # admin only
    tenantId: str | None


class CreateConnectTokenRequest(TypedDict, total=False):
    ttlSeconds: int | None


class CreateJoinTokenRequest(TypedDict, total=False):
    description: str | None
    # default: an hour
    expiresInSeconds: int | None
    maxUses: int | None
    # labels of the node that joins
    labels: Dict[str, str] | None


class _CreateMachineRequest(TypedDict):
    source: MachineSource


class CreateMachineRequest(_CreateMachineRequest, total=False):
    # default: a generated name, such as `calm-harbor-3f2a`
    name: str | None
    resources: ResourcesRequest | None
    network: NetworkRequest | None
    # environment of the machine and of every command in it
    env: Dict[str, str] | None
    # as `env`, but encrypted at rest, never shown, and wiped when the machine is deleted
    secretEnv: Dict[str, str] | None
    # absolute path; default: the image's, else /
    workdir: str | None
    # deleted once stopped
    ephemeral: bool | None
    # stop after this long without activity
    autoStopSeconds: int | None
    # end it this long after creation, as `atEnd` says
    ttlSeconds: int | None
    # what happens at the end of its ttl: `delete` deletes it in any state; `suspend` and `stop`
    # end it while it runs, also when it is started later without more time, and one that cannot
    # be suspended is stopped; default: delete
    atEnd: Literal["delete", "suspend", "stop"] | None
    # whether it is restarted when its VM ends unexpectedly or its host goes down; never after it
    # powers itself off; default: always
    restart: Literal["always", "never"] | None
    # what a move or a drain does to it while it runs: `migrate` moves its memory with it, so its
    # processes continue, and boots it there where that is not possible; `restart` boots it there;
    # `stop` moves its disk and leaves it stopped; default: migrate
    disruption: Literal["migrate", "restart", "stop"] | None
    # accepted; the machine starts without the storage
    mounts: List[MachineMountSpec] | None
    ports: List[PortRequest] | None
    # whether the machine's url needs no key
    public: bool | None
    # overrides the image's entrypoint and command
    command: List[str] | None
    forkable: bool | None
    branchable: bool | None
    # commands that run in the machine at moments of its life. `fork`: in a branch of it, which
    # does not start when it fails. `resume`: after a start continues its memory. `suspend`:
    # before its memory is saved. `stop`: before its programs get the signal to end. The failure
    # of one but `fork` is an event of the machine.
    hooks: HooksRequest | None
    labels: Labels | None
    # labels that the machine's node must have, with their values
    nodeLabels: NodeLabels | None


class CreateMachineSessionRequest(TypedDict, total=False):
    id: str | None
    cwd: str | None
    # environment of the session
    env: Dict[str, str] | None


class _CreatePlanRequest(TypedDict):
    name: str


class CreatePlanRequest(_CreatePlanRequest, total=False):
    id: str | None
    isDefault: bool | None
    budgetPolicy: Literal["none", "notify", "block", "stop"] | None
    maxApps: int | None
    maxCpus: int | None
    maxMemoryMb: int | None
    maxDiskGb: int | None
    maxMachines: int | None
    maxConcurrentMachines: int | None
    maxTotalCpus: int | None
    maxTotalMemoryMb: int | None
    maxTotalDiskGb: int | None
    rateCpuHourMicros: int | None
    rateMemoryGbHourMicros: int | None
    rateEgressGbMicros: int | None
    rateRegistryGbHourMicros: int | None
    rateExecMicros: int | None
    rateRequestsPerSecond: int | None
    rateBurst: int | None
    maxEgressGb: int | None
    maxPackageGb: int | None
    monthlyBudgetMicros: int | None


class CreateRateRequest(TypedDict, total=False):
    # RFC 3339, at least a minute ahead; default: in a minute
    activeFrom: str | None
    # default: as before
    rateCpuHourMicros: int | None
    # default: as before
    rateMemoryGbHourMicros: int | None
    # default: as before
    rateEgressGbMicros: int | None
    # default: as before
    rateRegistryGbHourMicros: int | None


class _CreateTenantRequest(TypedDict):
    name: str


class CreateTenantRequest(_CreateTenantRequest, total=False):
    id: str | None
    planId: str | None
    # whether its billing time can be moved, to rehearse months; never changes later. Default:
    # false
    testClock: bool | None


class _CreateVolumeRequest(TypedDict):
    # unique in the tenant
    name: str
    sizeGb: int


class CreateVolumeRequest(_CreateVolumeRequest, total=False):
    # repeated in `nodeId`
    node: str | None


class _CreateWebhookRequest(TypedDict):
    # https:// without a user name; http:// and private addresses only where the operator allows
    # them
    url: str


class CreateWebhookRequest(_CreateWebhookRequest, total=False):
    description: str | None
    types: List[str] | None


class DeleteApiKeyQuery(TypedDict, total=False):
    # also every key made with it, with one of those, and so on
    cascade: bool


class _DeleteImageQuery(TypedDict):
    # such as `local/tools:1`
    reference: str


class DeleteImageQuery(_DeleteImageQuery, total=False):
    nodeId: str


class DeleteMachineQuery(TypedDict, total=False):
    includeUsage: bool


class DeletePackageQuery(TypedDict):
    # such as `web:1` or `web@sha256:…`
    reference: str


class DeployPlan(TypedDict):
    # what the request would do; `none`: no input differs
    effect: Literal["create", "begin", "supersede", "none"]
    why: str
    # the number that its release would get
    release: int | None
    # the inputs that differ from the present release
    differences: List[str]
    # what would happen, one sentence after the other
    steps: List[str]


class _DeployRequest(TypedDict):
    # a host label, unique in the tenant
    name: str
    image: str


class DeployRequest(_DeployRequest, total=False):
    # how many instances serve; default: as before, 1 for a new app
    replicas: int | None
    # default: 1
    cpus: int | None
    # default: 512
    memoryMb: int | None
    # where instances listen; default: the lowest that the image exposes, else 8080
    port: int | None
    # a host name to serve besides its own; default: as before
    domain: str | None
    env: List[EnvVar] | None
    # as `env`, but encrypted at rest and shown nowhere
    secretEnv: List[EnvVar] | None
    health: HealthCheck | None
    # whether instances reach the network; default: true
    network: bool | None
    # how long open requests of an instance that leaves may continue; default: 10
    stopGraceSecs: int | None
    strategy: DeployStrategy | None
    volume: VolumeMount | None
    # the app beside whose instances its own are placed
    coLocateWith: str | None
    # whether its address needs no key; default: as before, true for a new app
    publicIngress: bool | None
    # how long instances may take to start before it is rolled back; default: 60
    placingDeadlineSecs: int | None
    # how long they may then take to become healthy before it is rolled back; default: 180
    healthDeadlineSecs: int | None


class DiffPlanQuery(TypedDict, total=False):
    # such as 2026-07; one that has begun; default: the last one
    month: str
    # for one virtual processor for an hour
    rateCpuHourMicros: int
    # for one GiB of memory for an hour
    rateMemoryGbHourMicros: int
    # for one GiB that machines send
    rateEgressGbMicros: int
    # for one GiB in the registry for an hour
    rateRegistryGbHourMicros: int


class DrainNodeAnswerReplacement(TypedDict):
    decision: Literal["replaced", "held"]
    # RFC 3339, UTC, with milliseconds
    decidedAt: str
    # why nothing is replaced
    reason: str | None


class DrainNodeAnswerLastError(TypedDict):
    # RFC 3339, UTC, with milliseconds
    at: str
    message: str


class DrainNodeAnswerPressureCpu(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class DrainNodeAnswerPressureMemory(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class DrainNodeAnswerPressureIo(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class DrainNodeAnswerPressure(TypedDict):
    cpu: DrainNodeAnswerPressureCpu
    memory: DrainNodeAnswerPressureMemory
    io: DrainNodeAnswerPressureIo


class DrainNodeAnswer(TypedDict):
    id: str
    # where servers reach the node's agent; `parked:` when it dials out to them
    address: str
    smolvmAddress: str
    # `unreachable`: it does not report, or the server that answers has no connection to it
    status: Literal["ready", "draining", "drained", "unreachable", "revoked"]
    totalCpus: int
    availableCpus: int
    totalMemoryMb: int
    availableMemoryMb: int
    totalDiskGb: int
    availableDiskGb: int
    # facts from the operator and observed ones, such as the accelerator
    labels: Dict[str, str]
    # RFC 3339, UTC, with milliseconds
    registeredAt: str
    # RFC 3339, UTC, with milliseconds
    lastHeartbeatAt: str | None
    # RFC 3339, UTC, with milliseconds
    cordonedAt: str | None
    # since when an operator works on it, so that its absence is expected
    maintenanceAt: str | None
    # what was decided of its machines that can be replaced, since it does not report; null:
    # nothing
    replacement: DrainNodeAnswerReplacement | None
    # of the link between server and nodes; null: it has not reported yet
    linkVersion: int | None
    # the version of its agent; null: it has not said
    release: str | None
    # the last error that its agent has logged since it started; null: none
    lastError: DrainNodeAnswerLastError | None
    # how far its clock was ahead of the server's with its last report; negative: behind
    clockAheadMs: int | None
    # of a node on another host; it is renewed when half of its day has passed
    certificateExpiresAt: str | None
    # machines that it has and that are unknown here, for example after a restore; it keeps them;
    # at most 1000
    unknownMachines: List[str]
    # machines that run in a VMM of another program than the one that is installed on the host,
    # such as an older QEMU; at most 1000; null: not reported
    outdatedVmms: List[str] | None
    runtime: str | None
    usedCpus: float
    usedMemoryMb: int
    usedDiskGb: int
    # how much processes of its host wait for resources (pressure stall information of its
    # kernel); null: not reported
    pressure: DrainNodeAnswerPressure | None
    operationId: str


class DrainNodeRequest(TypedDict, total=False):
    deadlineSeconds: int | None


class DrainPlanMovesItem(TypedDict):
    machineId: str
    name: str | None
    tenantId: str
    # as in MachineInfo
    state: str
    toNodeId: str
    # what happens to it: `none`: it is stopped; `migrate`: its memory moves with it; `restart`:
    # it boots there, a suspended one at its next start; `stop`: it is stopped and stays so
    disruption: Literal["none", "migrate", "restart", "stop"]
    # why its memory would be lost, although it could move
    reason: str | None
    # of its disk and log, of its memory if it is suspended, and of the base of its disk for the
    # first machine of an image that goes to a node
    bytes: int
    # how long it would be away, by the estimate
    seconds: int


class DrainPlanBlockedItem(TypedDict):
    machineId: str
    name: str | None
    tenantId: str
    # as in MachineInfo
    state: str
    reason: str


class DrainPlan(TypedDict):
    nodeId: str
    # in the order in which they would begin
    moves: List[DrainPlanMovesItem]
    # machines that would stay; those that run are stopped at the deadline
    blocked: List[DrainPlanBlockedItem]
    # of all moves; less when nodes have the bases already
    bytes: int
    # of all moves, by the estimate
    seconds: int
    # how `seconds` was computed
    estimate: str


class EnvVar(TypedDict):
    key: str
    value: str


class EventInfo(TypedDict):
    id: str
    # what happened, such as `machine.started`; later versions may add others
    type: str
    # the facts of this type; later versions may add fields
    data: Dict[str, Any]
    level: Literal["info", "warn", "error"]
    # printed from type and data, for people
    message: str
    # RFC 3339, UTC, with milliseconds
    createdAt: str


class ExecQuery(TypedDict, total=False):
    output: Literal["both", "text", "b64"]


class ExplainMachinePlacementQuery(TypedDict):
    machineId: str


class ExportMachineQuery(TypedDict, total=False):
    # answer 202 immediately, with the operation
    detach: bool


class ExportRequest(TypedDict, total=False):
    # default: latest
    tag: str | None
    # of the package, such as `web`; default: the machine's name, in lower case
    name: str | None
    # whether the machine's environment is in the package; never what is in its secret variables
    includeEnv: bool | None


class ExportResponse(TypedDict):
    # such as `tenants/<your tenant>/web:latest`
    reference: str
    # of the manifest; the same for the same disk
    digest: str
    # of all layers, as they are stored
    sizeBytes: int
    platforms: List[str]


class FileEntry(TypedDict):
    name: str
    kind: Literal["file", "directory", "link", "other"]
    size: int
    # four octal digits
    mode: str
    # RFC 3339, UTC, with milliseconds
    modifiedAt: str


class FleetAuthority(TypedDict):
    # SHA-256 of its certificate, in hex
    fingerprint: str
    # false: it is still trusted, until it is removed
    isSigning: bool
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    expiresAt: str


class FleetFindingSubject(TypedDict):
    kind: Literal["fleet", "server", "node", "authority"]
    # a node's id, an authority's fingerprint, a server's host
    id: str | None


class FleetFinding(TypedDict):
    code: Literal["server_runs", "server_silent", "no_nodes", "versions_apart", "versions_differ", "node_ready", "node_unreachable", "node_revoked", "node_draining", "node_cordoned", "node_in_maintenance", "node_never_reported", "node_does_not_answer", "node_error", "memory_short", "memory_pressure", "processor_pressure", "disk_short", "disk_pressure", "clock_off", "certificate_expires", "unknown_machines", "outdated_vmms", "replacement_held", "authority_signs", "authority_expires", "authority_not_yet_valid", "authority_retired", "authorities_unreadable"]
    # `bad` needs an operator now, `warn` deserves a look
    severity: Literal["ok", "warn", "bad"]
    subject: FleetFindingSubject
    # what was found
    message: str
    # what it means and what to do; empty: nothing
    action: str
    # the numbers and names of the message
    data: Dict[str, float | str]


class FleetMembershipListenersItem(TypedDict):
    id: str
    addresses: List[str]


class _FleetMembership(TypedDict):
    # certificates of the authorities that servers and nodes trust
    authorities: List[str]
    # the node's new certificate, as PEM; null: it keeps the one it has
    certificate: str | None
    # where running servers listen for nodes, as host:port
    listeners: List[FleetMembershipListenersItem]


class FleetMembershipIngressesItem(TypedDict):
    id: str
    addresses: List[str]


class FleetMembership(_FleetMembership, total=False):
    # where running ingresses listen for nodes, as host:port
    ingresses: List[FleetMembershipIngressesItem] | None


class FollowedChange(TypedDict):
    # `audit`: calls were recorded
    kind: Literal["operation", "app", "node", "audit"]
    # null: the whole list
    id: str | None


class GetAuditChainQuery(TypedDict, total=False):
    # another tenant's; admin only
    tenantId: str


class GetInvoiceQuery(TypedDict, total=False):
    # another tenant's; admin only
    tenantId: str
    # RFC 3339, in the past: what was known then. What was in use then counts up to then
    asOf: str


GetMachineUsageQuery = TypedDict(
    "GetMachineUsageQuery",
    {
        "from": "str",
        "to": "str",
    },
    total=False,
)


GetUsageQuery = TypedDict(
    "GetUsageQuery",
    {
        "from": "str",
        "to": "str",
    },
    total=False,
)


class _HealthCheck(TypedDict):
    type: HealthCheckType


class HealthCheck(_HealthCheck, total=False):
    # of http: what is asked for; default: /
    path: str | None
    # default: the app's port
    port: int | None
    # of exec: healthy if it exits with 0
    command: List[str] | None
    # default: 10
    intervalSecs: int | None
    # default: 5
    timeoutSecs: int | None
    # failures in a row after which an instance is unhealthy; default: 3
    retries: int | None


class HeartbeatLeaseRequest(TypedDict):
    ownerToken: str


class _HeartbeatNodeAnswer(TypedDict):
    # RFC 3339, UTC, with milliseconds
    acceptedAt: str
    link: LinkVersions


class HeartbeatNodeAnswerAbsentMachinesItem(TypedDict):
    machineId: str
    generation: int


class HeartbeatNodeAnswer(_HeartbeatNodeAnswer, total=False):
    acknowledgedRuns: int | None
    absentMachines: List[HeartbeatNodeAnswerAbsentMachinesItem] | None
    endedMoves: List[str] | None
    fleet: FleetMembership | None
    closedToGuests: List[str] | None


class _HookRequest(TypedDict):
    # the program and its arguments, bounded as those of exec; it runs as a command of exec does
    command: List[str]


class HookRequest(_HookRequest, total=False):
    # it is killed after this long; default: 10
    timeoutSecs: int | None


class HooksRequest(TypedDict, total=False):
    fork: HookRequest | None
    resume: HookRequest | None
    suspend: HookRequest | None
    stop: HookRequest | None


class ImageInfo(TypedDict):
    reference: str
    # of the image manifest
    digest: str
    # bytes on the node's disk
    size: int
    architecture: str
    os: str
    layerCount: int
    nodeId: str
    # RFC 3339, UTC, with milliseconds
    lastUsedAt: str | None


class _ImportImageQuery(TypedDict):
    # the image's new name, such as `local/tools:1`
    reference: str


class ImportImageQuery(_ImportImageQuery, total=False):
    # needed when there are several nodes
    nodeId: str


class InstanceInfo(TypedDict):
    id: str
    # empty until it is placed
    nodeId: str
    status: Literal["starting", "healthy", "unhealthy", "draining", "stopped", "failed", "lost"]
    # the number of its release
    generation: int
    hostPort: int | None
    # the machine that it is; GET /v1/machines/{id} finds it
    machineId: str
    # it is in the table of targets, and every ingress knows it
    isServing: bool
    # of an instance that leaves
    openRequests: int
    # why it failed, is unhealthy or leaves
    reason: str | None


Invoice = TypedDict(
    "Invoice",
    {
        "id": "str",
        "tenantId": "str",
        "status": "Literal['draft', 'grace', 'finalized']",
        "series": "str | None",
        "number": "int | None",
        "isTest": "bool",
        "from": "str",
        "to": "str",
        "finalFrom": "str",
        "finalizedAt": "str | None",
        "totalMicros": "int",
        "asOf": "str | None",
        "lines": "List[InvoiceLine]",
        "rates": "List[InvoiceRate]",
    },
)


class InvoiceCost(TypedDict):
    # the machine, the API key or the value of the label; null: it has none, or it is not known
    group: str | None
    kind: Literal["usage", "adjustment"]
    # when it was used
    month: str
    meter: Literal["uptime", "cpu", "memory", "disk", "egress", "registry"]
    rateId: str
    # exact, as of lines; the groups of a line add up to it
    amount: str
    # the group's part of the line's price: the groups of a line add up to it
    micros: int


InvoiceInfo = TypedDict(
    "InvoiceInfo",
    {
        "id": "str",
        "tenantId": "str",
        "status": "Literal['draft', 'grace', 'finalized']",
        "series": "str | None",
        "number": "int | None",
        "isTest": "bool",
        "from": "str",
        "to": "str",
        "finalFrom": "str",
        "finalizedAt": "str | None",
        "totalMicros": "int",
    },
)


class InvoiceInterval(TypedDict):
    # pass it as `?cursor=` to read the intervals after this one
    id: int
    # the machine may be deleted; null: of the registry
    machineId: str | None
    # the run of the machine; null for its disk, and of the registry
    bootId: str | None
    meter: Literal["uptime", "cpu", "memory", "disk", "egress", "registry"]
    # 1, virtual processors, MiB of memory, GiB of disk or MiB in the registry; of egress the
    # bytes that were counted together, in an interval of one millisecond
    quantity: int
    # RFC 3339, UTC, with milliseconds
    startedAt: str
    # null: the invoice knows no end of it
    endedAt: str | None
    # the end; without one the end of the month, or the last heartbeat of its node before that
    countedUntil: str
    # when the start was recorded
    recordedAt: str
    # null while it has no end: `rates` of the invoice say which held when
    rateId: str | None
    # the API key whose call or command started the machine, or created it if none had; of the
    # disk the one that created it. As of the interval's start; null: not known
    keyId: str | None
    # the machine's labels as of the interval's start
    labels: Dict[str, str]


class InvoiceLine(TypedDict):
    kind: Literal["usage", "adjustment"]
    # when it was used; for an adjustment an earlier month than the invoice's
    month: str
    meter: Literal["uptime", "cpu", "memory", "disk", "egress", "registry"]
    rateId: str
    # exact: quantity × milliseconds, where the quantity is 1, virtual processors, MiB of memory,
    # GiB of disk or MiB in the registry; of egress the bytes; for an adjustment the difference
    amount: str
    # the price of all that was used in `month` at this rate, rounded down once, less what earlier
    # invoices have of it
    micros: int
    # the path that lists the intervals it was computed from
    intervals: str


class InvoiceRate(TypedDict):
    id: str
    # RFC 3339, UTC, with milliseconds
    activeFrom: str
    # null: not before the end of the month
    activeUntil: str | None
    cpuHourMicros: int
    memoryGbHourMicros: int
    egressGbMicros: int
    registryGbHourMicros: int


class JoinTokenCreated(TypedDict):
    prefix: str
    description: str | None
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    expiresAt: str
    maxUses: int
    uses: int
    token: str
    # where servers listen for nodes on other hosts, as host:port; without one no such node can
    # join
    nodeAddresses: List[str]


class JoinTokenInfo(TypedDict):
    prefix: str
    description: str | None
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    expiresAt: str
    maxUses: int
    uses: int


class _LeaseInfo(TypedDict):
    leaseId: str
    machineId: str
    state: str


class LeaseInfo(_LeaseInfo, total=False):
    reason: str | None
    score: float | None
    result: Any


class LedgerTransactionEntriesItem(TypedDict):
    account: Literal["balance", "usage", "adjustment", "credit", "budget", "held"]
    micros: int


class LedgerTransaction(TypedDict):
    id: str
    kind: Literal["invoice", "credit", "adjustment", "hold"]
    # of an invoice: its month
    invoice: str | None
    note: str
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # the sum is 0; `balance` is what the tenant has, or owes when it is negative
    entries: List[LedgerTransactionEntriesItem]
    # the tenant's balance after it
    balanceMicros: int


class LineageMemoryItem(TypedDict):
    machineId: str
    # what its host would have free if it ended
    ownBytes: int
    # what it uses together with others: pages that neither has changed, and programs
    sharedBytes: int


class Lineage(TypedDict):
    rootMachineId: str
    machines: List[MachineInfo]
    # of those that run, and whose nodes answer
    memory: List[LineageMemoryItem]


class LinkVersions(TypedDict):
    version: int
    lowest: int


ListAuditQuery = TypedDict(
    "ListAuditQuery",
    {
        "limit": "int",
        "cursor": "str",
        "tenantId": "str",
        "all": "bool",
        "keyId": "str",
        "resource": "str",
        "type": "str",
        "from": "str",
        "to": "str",
        "order": "Literal['asc', 'desc']",
    },
    total=False,
)


class ListEventsQuery(TypedDict, total=False):
    limit: int
    cursor: str
    # only those of the machine with this id
    machine: str
    # only those of the app with this id, and of its instances
    app: str
    # only those of this type; `machine.*`: of all types of a subject
    type: str
    # `desc`: the newest first; not with `follow`
    order: Literal["asc", "desc"]
    # with `follow`: also say when what has no events has changed
    changes: bool
    # answer with Server-Sent Events: those after the cursor, then new ones
    follow: bool


class ListInvoiceCostsQuery(TypedDict, total=False):
    limit: int
    cursor: str
    # another tenant's; admin only
    tenantId: str
    # RFC 3339, in the past: what was known then. What was in use then counts up to then
    asOf: str
    # `machine` (default), `app` (the label `app`), `key`, or `label:` with the name of a label,
    # such as `label:team`
    by: str


class ListInvoiceIntervalsQuery(TypedDict, total=False):
    limit: int
    cursor: str
    # another tenant's; admin only
    tenantId: str
    # what the invoice knew of an earlier month; default: its own
    month: str
    meter: Literal["uptime", "cpu", "memory", "disk", "egress", "registry"]


class ListMachineEventsQuery(TypedDict, total=False):
    limit: int
    cursor: str
    # only those of this type; `machine.*`: all of the machine
    type: str


class ListMachineImagesAnswer(TypedDict):
    images: List[ImageInfo]


class ListMachinesQuery(TypedDict, total=False):
    # `key=value`; repeat for more
    label: List[str]
    limit: int
    cursor: str


class ListWebhookDeliveriesQuery(TypedDict, total=False):
    limit: int
    cursor: str
    status: Literal["pending", "delivered", "failed"]


LogsQuery = TypedDict(
    "LogsQuery",
    {
        "follow": "bool",
        "tail": "int",
        "format": "Literal['text', 'json', 'plain']",
        "from": "str",
        "to": "str",
        "after": "str",
        "before": "str",
        "limit": "int",
        "search": "str",
        "cursors": "bool",
    },
    total=False,
)


class LoopStatusCountsItem(TypedDict):
    name: str
    total: int


class LoopStatus(TypedDict):
    name: str
    purpose: str
    # it runs at least this often, unless it is running
    periodMs: int
    # RFC 3339, UTC, with milliseconds; null: it waits
    runningSince: str | None
    # RFC 3339, UTC, with milliseconds; null: it has not ended a run
    lastEndedAt: str | None
    # how long the last run took
    lastMs: int | None
    # runs that have ended since the server started, also those that failed
    runs: int
    # runs that failed, and items of runs
    errors: int
    # what it found and did since the server started
    counts: List[LoopStatusCountsItem]
    # how many runs in a row had errors, up to the last one
    failures: int
    # of the last run that had one
    lastError: str | None


class LostNodesNodesItem(TypedDict):
    nodeId: str
    # RFC 3339, UTC, with milliseconds
    lastHeartbeatAt: str | None
    decision: Literal["replaced", "held"]
    # RFC 3339, UTC, with milliseconds
    decidedAt: str | None
    # why its machines are not replaced
    reason: str | None
    # machines that are, or would be, replaced: they are in use by no user and have ended there
    replaceable: int
    # other machines that are to run: they wait for the node
    staying: int


class LostNodes(TypedDict):
    # whether nothing is replaced by itself
    isHeld: bool
    # why
    reason: str | None
    nodes: List[LostNodesNodesItem]


class MachineCapabilities(TypedDict):
    # whether a command runs immediately; a stopped machine is started first
    exec: bool
    branch: bool
    branchBatch: bool
    nestedBranch: bool
    maxBranchBatch: int
    fork: bool
    forkBatch: bool
    nestedFork: bool
    maxForkBatch: int


class _MachineCodeRequest(TypedDict):
    # `python` or `javascript` (aliases `node`, `js`)
    language: str
    code: str


class MachineCodeRequest(_MachineCodeRequest, total=False):
    cwd: str | None
    # added to the machine's environment
    env: Dict[str, str] | None
    timeoutSeconds: int | None


class _MachineCommandRequest(TypedDict):
    # a string runs as `sh -lc`; an array is the program and its arguments. The string, or one
    # argument, has less than 128 KiB, which is the kernel's limit; longer scripts go through
    # stdin, to `sh -l`, or into a file
    command: CommandSpec


class MachineCommandRequest(_MachineCommandRequest, total=False):
    cwd: str | None
    # added to the machine's environment
    env: Dict[str, str] | None
    stdin: str | None
    # answer with Server-Sent Events
    stream: bool | None
    # default 600
    timeoutSeconds: int | None
    # answer immediately with `pid=<n>` in stdout
    background: bool | None
    # name or uid, optionally with `:group`; default: the image's
    user: str | None


class _MachineExecResponse(TypedDict):
    # UTF-8, capped at 1 MiB; empty with output=b64
    stdout: str
    # UTF-8, capped at 1 MiB; empty with output=b64
    stderr: str
    exitCode: int
    durationMs: int
    machineId: str
    # whether `stdout` is incomplete
    stdoutTruncated: bool
    # whether `stderr` is incomplete
    stderrTruncated: bool


class MachineExecResponse(_MachineExecResponse, total=False):
    # base64 of the first 16 MiB, byte for byte; absent with output=text. `exec/stream?output=b64`
    # gives all of it, without a cap
    stdoutB64: str
    # base64 of the first 16 MiB, byte for byte; absent with output=text. `exec/stream?output=b64`
    # gives all of it, without a cap
    stderrB64: str
    # whether the base64 is incomplete: it ends at its cap, or earlier where commands that run at
    # the same time have used up the server's memory for all of them; absent with output=text
    stdoutB64Truncated: bool
    # whether the base64 is incomplete: it ends at its cap, or earlier where commands that run at
    # the same time have used up the server's memory for all of them; absent with output=text
    stderrB64Truncated: bool


class _MachineHook(TypedDict):
    # the program and its arguments, bounded as those of exec; it runs as a command of exec does
    command: List[str]


class MachineHook(_MachineHook, total=False):
    # it is killed after this long; default: 10
    timeoutSecs: int


class MachineHooks(TypedDict, total=False):
    fork: MachineHook
    resume: MachineHook
    suspend: MachineHook
    stop: MachineHook


class MachineInfo(TypedDict):
    # mach-<32 hex>
    id: str
    name: str | None
    source: MachineSource
    # one of `creating`, `started`, `stopped`, `error`; later versions may add others
    state: str
    resources: MachineResources
    network: MachineNetwork
    # environment
    env: Dict[str, str]
    # names of the variables whose values are not shown
    secretEnvNames: List[str]
    ephemeral: bool
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    updatedAt: str
    autoStopSeconds: int | None
    # RFC 3339, UTC, with milliseconds
    lastActivityAt: str | None
    ttlSeconds: int | None
    # what happens at the end of its ttl: `delete` deletes it in any state; `suspend` and `stop`
    # end it while it runs, also when it is started later without more time, and one that cannot
    # be suspended is stopped; default: delete
    atEnd: Literal["delete", "suspend", "stop"]
    # whether it is restarted when its VM ends unexpectedly or its host goes down; never after it
    # powers itself off; default: always
    restart: Literal["always", "never"]
    # what a move or a drain does to it while it runs: `migrate` moves its memory with it, so its
    # processes continue, and boots it there where that is not possible; `restart` boots it there;
    # `stop` moves its disk and leaves it stopped; default: migrate
    disruption: Literal["migrate", "restart", "stop"]
    workdir: str | None
    # why a `started` machine does nothing at present, such as a full disk of its host; it
    # continues by itself
    pauseReason: str | None
    # since when the agent of a `started` machine does not answer; a start restarts the machine
    unresponsiveSince: str | None
    # since when the memory of a `stopped` machine is kept; null: a start boots it
    suspendedAt: str | None
    # a published port has accepted a connection, or there is none, and the guest agent answers
    ready: bool
    # RFC 3339, UTC, with milliseconds
    readyAt: str | None
    ports: List[MachinePort]
    url: str | None
    arch: str | None
    # why the state is `error`
    error: str | None
    labels: Labels
    createdBy: str | None
    # the machine that it was branched from; it may be gone
    parentMachineId: str | None
    forkable: bool
    branchable: bool
    hooks: MachineHooks | None
    public: bool
    command: List[str] | None
    # the node that holds the machine's disk
    nodeId: str | None
    # labels that the machine's node must have, with their values
    nodeLabels: NodeLabels
    startTimings: StartTimings | None
    capabilities: MachineCapabilities


class _MachineMountSpec(TypedDict):
    # volume name
    volume: str
    # path inside the machine
    mountPath: str


class MachineMountSpec(_MachineMountSpec, total=False):
    readonly: bool | None


class _MachineNetwork(TypedDict):
    mode: Literal["open", "blocked", "allowCidrs"]


class MachineNetwork(_MachineNetwork, total=False):
    # with mode allowCidrs
    cidrs: List[str]
    # with mode allowCidrs
    hosts: List[str]


class MachinePort(TypedDict):
    port: int
    hostPort: int | None


class MachineResources(TypedDict):
    cpus: int
    memoryMb: int
    diskGb: int | None


class MachineSessionInfo(TypedDict):
    id: str
    machineId: str
    status: Literal["active"]
    cwd: str | None
    # environment of the session
    env: Dict[str, str]
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    lastExecAt: str | None


class _MachineSource(TypedDict):
    # an OCI image, or a packaged machine of the registry
    type: Literal["image", "smolmachine"]
    # such as `alpine`, `local/busybox`, `host:5000/app:1`
    reference: str


class MachineSource(_MachineSource, total=False):
    arch: Literal["amd64", "arm64"] | None


MachineUsageResponse = TypedDict(
    "MachineUsageResponse",
    {
        "machineId": "str",
        "from": "str",
        "to": "str",
        "usage": "UsageResponse",
        "cost": "CostBreakdown",
    },
)


class MadeBranches(TypedDict):
    clones: List[MachineInfo]


class MoveMachineRequest(TypedDict, total=False):
    # default: placement chooses
    nodeId: str | None
    # default: an hour; at most a day
    deadlineSeconds: int | None


class _NetworkRequest(TypedDict):
    mode: Literal["open", "blocked", "allowCidrs"]


class NetworkRequest(_NetworkRequest, total=False):
    cidrs: List[str] | None
    hosts: List[str] | None


class NodeInfoReplacement(TypedDict):
    decision: Literal["replaced", "held"]
    # RFC 3339, UTC, with milliseconds
    decidedAt: str
    # why nothing is replaced
    reason: str | None


class NodeInfoLastError(TypedDict):
    # RFC 3339, UTC, with milliseconds
    at: str
    message: str


class NodeInfoPressureCpu(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class NodeInfoPressureMemory(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class NodeInfoPressureIo(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class NodeInfoPressure(TypedDict):
    cpu: NodeInfoPressureCpu
    memory: NodeInfoPressureMemory
    io: NodeInfoPressureIo


class NodeInfo(TypedDict):
    id: str
    # where servers reach the node's agent; `parked:` when it dials out to them
    address: str
    smolvmAddress: str
    # `unreachable`: it does not report, or the server that answers has no connection to it
    status: Literal["ready", "draining", "drained", "unreachable", "revoked"]
    totalCpus: int
    availableCpus: int
    totalMemoryMb: int
    availableMemoryMb: int
    totalDiskGb: int
    availableDiskGb: int
    # facts from the operator and observed ones, such as the accelerator
    labels: Dict[str, str]
    # RFC 3339, UTC, with milliseconds
    registeredAt: str
    # RFC 3339, UTC, with milliseconds
    lastHeartbeatAt: str | None
    # RFC 3339, UTC, with milliseconds
    cordonedAt: str | None
    # since when an operator works on it, so that its absence is expected
    maintenanceAt: str | None
    # what was decided of its machines that can be replaced, since it does not report; null:
    # nothing
    replacement: NodeInfoReplacement | None
    # of the link between server and nodes; null: it has not reported yet
    linkVersion: int | None
    # the version of its agent; null: it has not said
    release: str | None
    # the last error that its agent has logged since it started; null: none
    lastError: NodeInfoLastError | None
    # how far its clock was ahead of the server's with its last report; negative: behind
    clockAheadMs: int | None
    # of a node on another host; it is renewed when half of its day has passed
    certificateExpiresAt: str | None
    # machines that it has and that are unknown here, for example after a restore; it keeps them;
    # at most 1000
    unknownMachines: List[str]
    # machines that run in a VMM of another program than the one that is installed on the host,
    # such as an older QEMU; at most 1000; null: not reported
    outdatedVmms: List[str] | None
    runtime: str | None
    usedCpus: float
    usedMemoryMb: int
    usedDiskGb: int
    # how much processes of its host wait for resources (pressure stall information of its
    # kernel); null: not reported
    pressure: NodeInfoPressure | None


class OpenConsoleLinkRequest(TypedDict):
    token: str


class OpenTerminalQuery(TypedDict, total=False):
    # keeps the terminal under this id, which is 32 random hexadecimal digits drawn by the client
    terminal: str
    # continues the kept terminal after so many bytes of its output; it never begins one, or
    # starts a machine
    offset: int
    cmd: str
    command: str
    # an argument of `cmd`; repeat for more
    arg: List[str]
    cwd: str
    # as in exec
    user: str
    # `NAME=value`; repeat for more
    env: List[str]
    # 0, as of a terminal whose size is not known: 80
    cols: int
    # 0, as of a terminal whose size is not known: 24
    rows: int
    access_token: str


class OperationResource(TypedDict):
    kind: str
    id: str
    name: str | None


class Operation(TypedDict):
    id: str
    tenantId: str
    kind: Literal["app deploy", "app scale", "app promote", "app redeploy", "app rollback", "app destroy", "node drain", "node upgrade", "machine export", "machine branch", "machine checkpoint", "machine move", "image pull", "registry collection"]
    status: Literal["running", "succeeded", "failed", "canceled"]
    resource: OperationResource
    steps: List[OperationStep]
    error: str | None
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    updatedAt: str


class _OperationStep(TypedDict):
    name: str
    status: Literal["pending", "running", "succeeded", "failed"]
    # RFC 3339, UTC, with milliseconds
    startedAt: str | None
    # RFC 3339, UTC, with milliseconds
    finishedAt: str | None
    # progress while it runs; afterwards its result
    message: str | None


class OperationStep(_OperationStep, total=False):
    # of a move or a branch: how long the machine did not run, by its nodes' clocks
    downtimeMs: int
    # of an export: the package
    reference: str
    # of an export: of the manifest
    digest: str
    # of an export: of all layers
    sizeBytes: int
    # of an export: of the layers that the registry did not have
    sentBytes: int
    # of an export
    platforms: List[str]


class PackageInfo(TypedDict):
    # with the newest tag
    reference: str
    digest: str
    # the newest first
    tags: List[str]
    # of all that it needs, also of what other packages share with it
    sizeBytes: int
    # the smallest disk of a machine from it; null: it is not a machine's disk
    diskGb: int | None
    architecture: str | None
    # what the machine was made from
    image: str | None
    imageDigest: str | None
    # the machine whose disk it is; it may be gone
    machineId: str | None
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # when its newest tag was set
    updatedAt: str


class PackageRetention(TypedDict):
    name: str
    # how many tags are kept, the newest; null: all
    keepLast: int | None


class PageQuery(TypedDict, total=False):
    limit: int
    cursor: str


class PlacementExplanationFiltersItem(TypedDict):
    name: Literal["status", "cordon", "image", "architecture", "labels", "size", "processors", "promisedMemory", "memory", "pressure", "disk"]
    # nodes left by it
    left: int


class PlacementExplanationNodesItemScore(TypedDict):
    # share of its processors or memory, or of its ceiling for them, that would be promised to
    # machines
    promised: float
    # 0 up to half of its ceiling; beyond, it is lower for a fuller node, so that large machines
    # still fit elsewhere
    packing: float
    # share of its processors or memory that is in use now
    busy: float
    # share of the last minute in which processes of its host waited for a processor, memory or
    # the disk, whichever is larger; 0 if it is not reported
    pressure: float
    # the cost of fetching the image; 0 where it is
    image: float
    # the sum; the lowest is the best
    total: float


class PlacementExplanationNodesItem(TypedDict):
    nodeId: str
    # the first filter that excludes it; of the node that has the disk: that refuses a start there
    filter: Literal["status", "cordon", "image", "architecture", "labels", "size", "processors", "promisedMemory", "memory", "pressure", "disk"] | None
    # why it is excluded
    reason: str | None
    score: PlacementExplanationNodesItemScore | None


class PlacementExplanation(TypedDict):
    # the node that has the machine's disk, else the one that would be chosen
    nodeId: str | None
    # whether the machine's disk is on `nodeId`
    hasDisk: bool
    reason: str
    # what an operator can do about it; null: nothing is needed
    advice: str | None
    # in the order in which they apply
    filters: List[PlacementExplanationFiltersItem]
    # best first, then the excluded ones. Where `hasDisk`, a start uses `nodeId` only, and the
    # others show where a move may go
    nodes: List[PlacementExplanationNodesItem]


class _PlacementRequest(TypedDict):
    source: MachineSource


class PlacementRequest(_PlacementRequest, total=False):
    resources: ResourcesRequest | None
    network: NetworkRequest | None
    # labels that the machine's node must have, with their values
    nodeLabels: NodeLabels | None


class PlanDiffTenantsItem(TypedDict):
    tenantId: str
    # what its usage under the plan costs in the month; null, also below: more than 2^53
    micros: int | None
    # what the same usage costs at the given prices, rounded down once for each meter
    plannedMicros: int | None
    differenceMicros: int | None


class PlanDiff(TypedDict):
    planId: str
    month: str
    cpuHourMicros: int
    memoryGbHourMicros: int
    egressGbMicros: int
    registryGbHourMicros: int
    tenants: List[PlanDiffTenantsItem]


class PlanInfo(TypedDict):
    id: str
    name: str
    isDefault: bool
    budgetPolicy: Literal["none", "notify", "block", "stop"]
    maxApps: int
    # per machine
    maxCpus: int
    # per machine
    maxMemoryMb: int
    # per machine
    maxDiskGb: int
    # in all states
    maxMachines: int
    # started and creating
    maxConcurrentMachines: int
    # sum of all machines that are started or creating
    maxTotalCpus: int
    # sum of all machines that are started or creating
    maxTotalMemoryMb: int
    # sum of all machines in any state, and of the memory of suspended ones
    maxTotalDiskGb: int
    # as it is now; `/v1/plans/{id}/rates` has every price with its time
    rateCpuHourMicros: int
    # as it is now
    rateMemoryGbHourMicros: int
    # commands are free
    rateExecMicros: int
    # 0: there is no price per machine
    rateBaseHourMicros: int
    # 0: disks have no price
    rateDiskGbHourMicros: int
    # per GB that machines send, 2^30 bytes; as it is now
    rateEgressGbMicros: int
    # per GB in the registry and hour; as it is now
    rateRegistryGbHourMicros: int
    # 0: plans have no fee
    monthlyFeeMicros: int
    # 0: a plan gives no credit
    freeCreditMicros: int
    # refill of the tenant's token bucket
    rateRequestsPerSecond: int
    # size of the tenant's token bucket
    rateBurst: int
    # GB that all machines may send in a calendar month; then starts are refused and running
    # machines are stopped
    maxEgressGb: int | None
    # GB that a tenant may store in the registry
    maxPackageGb: int | None
    monthlyBudgetMicros: int | None
    # RFC 3339, UTC, with milliseconds
    createdAt: str


class _PoolConfig(TypedDict):
    image: str


class PoolConfig(_PoolConfig, total=False):
    cpus: int | None
    memoryMb: int | None
    # whether its machines reach the network; default: true
    network: bool | None
    # a machine that has waited longer is replaced; 0: never
    maxIdleSecs: int | None
    # how many machines wait; default: 1
    targetSize: int | None
    # admin only
    tenantId: str | None


class PoolInfo(TypedDict):
    id: str
    image: str
    targetSize: int
    # machines that run and can be claimed
    idleCount: int
    # claimed machines that were not deleted
    busyCount: int
    status: Literal["filling", "ready", "degraded"]
    # with `degraded`: why a machine could not be made or started
    error: str | None
    # null: the default
    cpus: int | None
    # null: the default
    memoryMb: int | None
    network: bool
    maxIdleSecs: int | None
    # RFC 3339, UTC, with milliseconds
    createdAt: str


class _PortRequest(TypedDict):
    port: int


class PortRequest(_PortRequest, total=False):
    # accepted and ignored: the node chooses
    hostPort: int | None


class _PostToLedgerRequest(TypedDict):
    tenantId: str
    # what is added to the tenant's balance; below 0 only for an adjustment
    micros: int


class PostToLedgerRequest(_PostToLedgerRequest, total=False):
    # default: credit
    kind: Literal["credit", "adjustment"] | None
    # for people
    note: str | None


class _PullImageRequest(TypedDict):
    reference: str


class PullImageRequest(_PullImageRequest, total=False):
    nodeId: str | None


class _PullMachineImageRequest(TypedDict):
    image: str


class PullMachineImageRequest(_PullMachineImageRequest, total=False):
    ociPlatform: str | None


class RateInfo(TypedDict):
    id: str
    planId: str
    # it holds from then on, until the next one
    activeFrom: str
    rateCpuHourMicros: int
    rateMemoryGbHourMicros: int
    rateEgressGbMicros: int
    rateRegistryGbHourMicros: int
    # RFC 3339, UTC, with milliseconds
    createdAt: str


class ReadFileAtQuery(TypedDict, total=False):
    list: bool


class ReadFileQuery(TypedDict, total=False):
    path: str
    list: bool


class _RefusalDetailsResource(TypedDict):
    kind: Literal["apikey", "app", "authority", "checkpoint", "directory", "file", "image", "invoice", "machine", "node", "path", "plan", "pool", "tenant", "token", "webhook"]


class RefusalDetailsResource(_RefusalDetailsResource, total=False):
    id: str


class RefusalDetails(TypedDict, total=False):
    # the field of the request that is at fault, as a path: `resources.cpus`
    field: str
    # what its schema says of the field, to be read after its name: `be at most 64`
    must: str
    limit: RefusalLimit
    # what is missing, or of another kind
    resource: RefusalDetailsResource
    # a call that helps: `GET /v1/plans`
    call: str


class RefusalLimit(TypedDict):
    # of a field: its value, the length of its text, the number of its entries; or a ceiling of
    # the plan
    of: Literal["value", "characters", "entries", "maxApps", "maxMachines", "maxConcurrentMachines", "maxTotalCpus", "maxTotalMemoryMb", "maxTotalDiskGb", "maxCpus", "maxMemoryMb", "maxDiskGb", "maxEgressGb"]
    bound: Literal["<=", ">=", "<", ">"]
    value: float


class _RegisterNodeRequest(TypedDict):
    id: str
    address: str


class RegisterNodeRequest(_RegisterNodeRequest, total=False):
    totalCpus: int | None
    totalMemoryMb: int | None
    totalDiskGb: int | None
    # facts
    labels: Dict[str, str] | None
    runtime: str | None
    # P-256, as PEM; of a node on another host than the server
    publicKey: str | None
    # signature with that key, in base64: contract/src/link/fleet.ts
    proof: str | None
    link: LinkVersions | None


class RegisterPackageAnswer(TypedDict):
    repo: str
    tag: str
    digest: str
    count: int


class RegisterPackageRequest(TypedDict):
    repo: str
    tag: str
    digest: str
    sizeBytes: int
    platforms: List[str]
    manifest: str


class RegisteredNodeReplacement(TypedDict):
    decision: Literal["replaced", "held"]
    # RFC 3339, UTC, with milliseconds
    decidedAt: str
    # why nothing is replaced
    reason: str | None


class RegisteredNodeLastError(TypedDict):
    # RFC 3339, UTC, with milliseconds
    at: str
    message: str


class RegisteredNodePressureCpu(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class RegisteredNodePressureMemory(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class RegisteredNodePressureIo(TypedDict):
    # percent of the last minute in which at least one process waited for it
    some: float
    # in which all processes that had something to do waited for it
    full: float


class RegisteredNodePressure(TypedDict):
    cpu: RegisteredNodePressureCpu
    memory: RegisteredNodePressureMemory
    io: RegisteredNodePressureIo


class RegisteredNode(TypedDict):
    id: str
    # where servers reach the node's agent; `parked:` when it dials out to them
    address: str
    smolvmAddress: str
    # `unreachable`: it does not report, or the server that answers has no connection to it
    status: Literal["ready", "draining", "drained", "unreachable", "revoked"]
    totalCpus: int
    availableCpus: int
    totalMemoryMb: int
    availableMemoryMb: int
    totalDiskGb: int
    availableDiskGb: int
    # facts from the operator and observed ones, such as the accelerator
    labels: Dict[str, str]
    # RFC 3339, UTC, with milliseconds
    registeredAt: str
    # RFC 3339, UTC, with milliseconds
    lastHeartbeatAt: str | None
    # RFC 3339, UTC, with milliseconds
    cordonedAt: str | None
    # since when an operator works on it, so that its absence is expected
    maintenanceAt: str | None
    # what was decided of its machines that can be replaced, since it does not report; null:
    # nothing
    replacement: RegisteredNodeReplacement | None
    # of the link between server and nodes; null: it has not reported yet
    linkVersion: int | None
    # the version of its agent; null: it has not said
    release: str | None
    # the last error that its agent has logged since it started; null: none
    lastError: RegisteredNodeLastError | None
    # how far its clock was ahead of the server's with its last report; negative: behind
    clockAheadMs: int | None
    # of a node on another host; it is renewed when half of its day has passed
    certificateExpiresAt: str | None
    # machines that it has and that are unknown here, for example after a restore; it keeps them;
    # at most 1000
    unknownMachines: List[str]
    # machines that run in a VMM of another program than the one that is installed on the host,
    # such as an older QEMU; at most 1000; null: not reported
    outdatedVmms: List[str] | None
    runtime: str | None
    usedCpus: float
    usedMemoryMb: int
    usedDiskGb: int
    # how much processes of its host wait for resources (pressure stall information of its
    # kernel); null: not reported
    pressure: RegisteredNodePressure | None
    # shown once; null when the node called with its credential
    credential: str | None
    fleet: FleetMembership | None
    link: LinkVersions


class ReleaseInfo(TypedDict):
    number: int
    image: str
    digest: str
    # why it was made, in a sentence
    why: str
    # of its rollout; null: it is under way
    outcome: Literal["succeeded", "failed", "superseded"] | None
    outcomeReason: str | None
    isCurrent: bool
    env: List[EnvVar]
    secretEnvNames: List[str]
    cpus: int
    memoryMb: int
    port: int
    health: HealthCheck | None
    network: bool
    stopGraceSecs: int
    # RFC 3339, UTC, with milliseconds
    createdAt: str


class ReplaceLostNodesRequest(TypedDict, total=False):
    nodeIds: List[str] | None


class ReplayRequest(TypedDict, total=False):
    # of an event; default: from the oldest event that is kept (30 days)
    cursor: str | None


class ResourcesRequest(TypedDict, total=False):
    # default 4, even if the plan allows less: the machine is then refused
    cpus: int | None
    # default 8192, even if the plan allows less: the machine is then refused
    memoryMb: int | None
    # default 20, or what the plan allows if that is less
    diskGb: int | None


class RestoreCheckpointRequest(TypedDict):
    name: MachineName


class RollbackRequest(TypedDict, total=False):
    # whose inputs are deployed again; default: the one before the present one
    release: int | None


class _RollingStrategy(TypedDict):
    type: Literal["rolling"]


class RollingStrategy(_RollingStrategy, total=False):
    # default: 1
    batchSize: int | None
    # default: true; false: an instance serves once its port accepts connections
    useHealthCheck: bool | None
    # default: 5; between batches without the health check
    waitSeconds: int | None


RolloutInfo = TypedDict(
    "RolloutInfo",
    {
        "phase": "Literal['placing', 'checking', 'routing', 'pausing', 'awaitingPromotion', 'retiring', 'failed']",
        "strategy": "Literal['rolling', 'canary', 'blueGreen']",
        "from": "int | None",
        "to": "int",
        "message": "str",
        "waitingFor": "str | None",
        "startedAt": "str",
        "deadline": "str | None",
        "operationId": "str",
    },
)


class RotateSecretRequest(TypedDict, total=False):
    # how long the previous secret also signs; default 24
    keepPreviousHours: int | None


class ScaleRequest(TypedDict):
    # 0: none serves
    count: int


class ServerInfo(TypedDict):
    # of this run of the server
    id: str
    host: str
    # its version
    release: str
    # of the link between server and nodes
    linkVersion: int
    # RFC 3339, UTC, with milliseconds
    startedAt: str
    # when it last announced itself; it does so every 10 s, and is left out after 45 s
    seenAt: str


class ServerLoops(TypedDict):
    # of the server that answers: each runs all loops, and knows only its own runs
    serverId: str
    host: str
    loops: List[LoopStatus]


class SetPackageRetentionRequest(TypedDict):
    # such as `web` or `library/tools`
    name: str
    # null: all
    keepLast: int | None


class ShareInfo(TypedDict):
    token: str
    url: str | None


class StartMachineQuery(TypedDict, total=False):
    # answer 202 immediately and boot in the background
    detach: bool
    # it may be branched from now on
    forkable: bool


class StartTimings(TypedDict, total=False):
    # where the VM came from: prepared before, restored from a template, or booted
    vm: Literal["prepared", "template", "boot"]
    # finding or pulling the image
    imageMs: float
    # making the disk
    diskMs: float
    # from requesting a VM until its agent answered
    bootMs: float
    # configuring the guest: clock, disk, name, network
    configureMs: float
    # from the start request on the node until the machine ran
    totalMs: float


class StopMachineQuery(TypedDict, total=False):
    # suspend the machine: a start continues its processes
    keepMemory: bool


class TenantEventSubject(TypedDict):
    # such as `machine`, the first part of the type
    kind: str
    id: str


class TenantEvent(TypedDict):
    id: str
    # what happened, such as `machine.started`; later versions may add others
    type: str
    # the facts of this type; later versions may add fields
    data: Dict[str, Any]
    level: Literal["info", "warn", "error"]
    # printed from type and data, for people
    message: str
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # what the event is about; it may be deleted
    subject: TenantEventSubject
    # pass it as `?cursor=` to read the events after this one
    cursor: str


class TenantInfo(TypedDict):
    id: str
    name: str
    status: Literal["active", "suspended"]
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    updatedAt: str
    planId: str | None
    externalBillingId: str | None
    maxApps: int | None
    maxCpus: int | None
    maxMemoryMb: int | None
    maxDiskGb: int | None
    maxSandboxPools: int | None
    # what is left of its credit, as `prepaidCreditMicros` of the account
    freeCreditMicros: int
    # its billing time, which an operator moves; null: it has no test clock
    testClock: str | None


class TenantMeter(TypedDict):
    tenantId: str
    cpuHours: float
    memoryGbHours: float
    diskGbHours: float
    # what machines sent, in units of 2^30 bytes
    egressGb: float
    # what the tenant had in the registry
    registryGbHours: float
    execCount: int
    cost: CostBreakdown | None
    externalBillingId: str | None


class TenantPageQuery(TypedDict, total=False):
    limit: int
    cursor: str
    # another tenant's; admin only
    tenantId: str


class UpdateMachineRequest(TypedDict, total=False):
    # what a move or a drain does to it while it runs: `migrate` moves its memory with it, so its
    # processes continue, and boots it there where that is not possible; `restart` boots it there;
    # `stop` moves its disk and leaves it stopped; default: migrate
    disruption: Literal["migrate", "restart", "stop"] | None
    # end it this long after creation, as `atEnd` says; 0: never
    ttlSeconds: int | None
    # what happens at the end of its ttl: `delete` deletes it in any state; `suspend` and `stop`
    # end it while it runs, also when it is started later without more time, and one that cannot
    # be suspended is stopped; default: delete
    atEnd: Literal["delete", "suspend", "stop"] | None
    labels: Labels | None


class UpdatePlanRequest(TypedDict, total=False):
    name: str | None
    # only as it is: a new default plan is made with POST /v1/plans
    isDefault: bool | None
    budgetPolicy: Literal["none", "notify", "block", "stop"] | None
    maxApps: int | None
    maxCpus: int | None
    maxMemoryMb: int | None
    maxDiskGb: int | None
    maxMachines: int | None
    maxConcurrentMachines: int | None
    maxTotalCpus: int | None
    maxTotalMemoryMb: int | None
    maxTotalDiskGb: int | None
    # only as it is: prices are set with POST /v1/plans/{id}/rates
    rateCpuHourMicros: int | None
    # only as it is
    rateMemoryGbHourMicros: int | None
    # only as it is
    rateEgressGbMicros: int | None
    # only as it is
    rateRegistryGbHourMicros: int | None
    rateExecMicros: int | None
    rateRequestsPerSecond: int | None
    rateBurst: int | None
    # null: no limit
    maxEgressGb: int | None
    # null: no limit
    maxPackageGb: int | None
    # null: no budget
    monthlyBudgetMicros: int | None


class UpdateTenantRequest(TypedDict, total=False):
    externalBillingId: str | None
    planId: str | None
    status: Literal["active", "suspended"] | None
    maxApps: int | None
    maxCpus: int | None
    maxMemoryMb: int | None
    maxDiskGb: int | None


class UpdateWebhookRequest(TypedDict, total=False):
    # https:// without a user name; http:// and private addresses only where the operator allows
    # them
    url: str | None
    description: str | None
    types: List[str] | None
    # true: deliveries continue where they ended
    enabled: bool | None


class UpgradeNodesRequest(TypedDict, total=False):
    nodeIds: List[str] | None
    vmms: bool | None


UsageResponse = TypedDict(
    "UsageResponse",
    {
        "tenantId": "str",
        "from": "str",
        "to": "str",
        "totalUptimeSeconds": "int",
        "cpuHours": "float",
        "memoryGbHours": "float",
        "diskGbHours": "float",
        "egressGb": "float",
        "registryGbHours": "float",
        "machineCount": "int",
        "execCount": "int",
        "execDurationMs": "int",
    },
)


class VolumeInfo(TypedDict):
    id: str
    name: str
    # empty when the request named no node
    nodeId: str
    sizeGb: int
    # always `unsupported`: there is no storage
    status: str
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    appInstanceId: str | None


class _VolumeMount(TypedDict):
    name: str
    mountPath: str


class VolumeMount(_VolumeMount, total=False):
    sizeGb: int | None


class WatchTerminalQuery(TypedDict, total=False):
    # begins after so many bytes of the output, if they are still kept; default 0
    offset: int
    access_token: str


class WebhookCreated(TypedDict):
    id: str
    url: str
    description: str | None
    # null: events of every type
    types: List[str] | None
    enabled: bool
    # why the server disabled it; null: it did not
    disabledReason: str | None
    # failed attempts since the last successful one
    failures: int
    # RFC 3339, UTC, with milliseconds
    failingSince: str | None
    # events that wait to be delivered again, or for the first time
    pending: int
    # of the last event that was read for it
    cursor: str | None
    # until then deliveries are signed with the previous secret as well
    previousSecretUntil: str | None
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    updatedAt: str
    # `whsec_` and base64; shown only here
    secret: str


class WebhookDelivery(TypedDict):
    # of the event; sent as `webhook-id`
    id: str
    type: str
    status: Literal["pending", "delivered", "failed"]
    attempts: int
    # RFC 3339, UTC, with milliseconds
    queuedAt: str
    # RFC 3339, UTC, with milliseconds
    lastAttemptAt: str | None
    # null: no further attempt
    nextAttemptAt: str | None
    # the HTTP status of the last attempt; null: there was no answer
    lastStatus: int | None
    # why the last attempt failed
    lastError: str | None
    # what is sent, byte for byte
    body: str


class WebhookInfo(TypedDict):
    id: str
    url: str
    description: str | None
    # null: events of every type
    types: List[str] | None
    enabled: bool
    # why the server disabled it; null: it did not
    disabledReason: str | None
    # failed attempts since the last successful one
    failures: int
    # RFC 3339, UTC, with milliseconds
    failingSince: str | None
    # events that wait to be delivered again, or for the first time
    pending: int
    # of the last event that was read for it
    cursor: str | None
    # until then deliveries are signed with the previous secret as well
    previousSecretUntil: str | None
    # RFC 3339, UTC, with milliseconds
    createdAt: str
    # RFC 3339, UTC, with milliseconds
    updatedAt: str


class WebhookSecret(TypedDict):
    id: str
    # `whsec_` and base64; shown only here
    secret: str


class WriteFileQuery(TypedDict, total=False):
    path: str


CommandSpec = Union[str, List[str]]


DeployStrategy = Union["RollingStrategy", "CanaryStrategy", "BlueGreenStrategy"]


HealthCheckType = Literal["http", "tcp", "exec"]


Labels = Dict[str, str]


MachineName = str


NodeLabels = Dict[str, str]

