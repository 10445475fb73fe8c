// What a dashboard must look like, as strictly as Grafana's own types allow: unknown fields are errors, and each kind
// of panel has the options and the field settings of its plugin. tests/test_grafana_types.py assigns the JSON to it.
import type * as g from '@grafana/schema';
import type * as bargauge from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import type * as heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as statetimeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

export type Board = Omit<Json<g.Dashboard>, 'panels' | 'annotations' | 'templating' | 'links'> & {
  uid: string;
  title: string;
  description: string;
  tags: string[];
  panels: Array<Row | Panel>;
  annotations: { list: Annotation[] };
  templating: { list: Variable[] };
  links: Array<Json<g.DashboardLink>>;
};

// JSON has the values of enumerations, not their names.
type Json<T> = 0 extends 1 & T
  ? T
  : T extends string
    ? `${T}`
    : T extends number | boolean | null | undefined
      ? T
      : T extends Array<infer U>
        ? Array<Json<U>>
        : T extends object
          ? { [K in keyof T]: Json<T[K]> }
          : T;

type Source = { type: 'prometheus'; uid: '${datasource}' };

type Panel =
  | Kind<'bargauge', bargauge.Options, Record<string, never>>
  | Kind<'heatmap', heatmap.Options, heatmap.FieldConfig>
  | Kind<'stat', stat.Options, Record<string, never>>
  | Kind<'state-timeline', statetimeline.Options, statetimeline.FieldConfig>
  | Kind<'table', table.Options, table.FieldConfig>
  | Kind<'timeseries', timeseries.Options, timeseries.FieldConfig>;

type Kind<Type extends string, Options, Custom> = Omit<
  Json<g.Panel>,
  'type' | 'id' | 'title' | 'description' | 'datasource' | 'gridPos' | 'options' | 'fieldConfig' | 'targets'
> & {
  type: Type;
  id: number;
  title: string;
  description: string;
  datasource: Source;
  gridPos: Json<g.GridPos>;
  options: Partial<Json<Options>>; // the plugin fills in the rest
  targets: Query[];
  fieldConfig: {
    defaults: Omit<Json<g.FieldConfig>, 'custom' | 'links' | 'unit' | 'noValue'> & {
      unit: string;
      noValue: string;
      custom?: Partial<Json<Custom>>;
      links?: DataLink[];
    };
    overrides: Array<{ matcher: { id: 'byName'; options: string }; properties: Array<Property<Custom>> }>;
  };
};

type Property<Custom> =
  | { id: 'color'; value: Json<g.FieldColor> }
  | { id: 'decimals'; value: number }
  | { id: 'links'; value: DataLink[] }
  | { id: 'mappings'; value: Array<Json<g.ValueMapping>> }
  | { id: 'noValue'; value: string }
  | { id: 'thresholds'; value: Json<g.ThresholdsConfig> }
  | { id: 'unit'; value: string }
  | { [K in keyof Custom & string]: { id: `custom.${K}`; value: Json<Custom[K]> } }[keyof Custom & string];

type Row = Omit<Json<g.RowPanel>, 'panels' | 'gridPos' | 'title'> & {
  panels: Panel[];
  title: string;
  gridPos: Json<g.GridPos>;
};

type Annotation = Omit<Json<g.AnnotationQuery>, 'target' | 'datasource'> & {
  datasource: Source;
  target: Query;
  // The data source of Prometheus reads these beside the schema.
  expr: string;
  titleFormat: string;
  textFormat: string;
  tagKeys: string;
};

type Variable = Omit<Json<g.VariableModel>, 'datasource' | 'query'> & {
  datasource?: Source;
  query: string;
  definition?: string; // what lists of variables show; not in the schema
};

// The schema has no types for these two: what Grafana's Prometheus data source and its data links read.
type Query = {
  refId: string;
  datasource: Source;
  editorMode: 'code';
  expr: string;
  legendFormat?: string;
  exemplar?: boolean;
  format?: 'time_series' | 'table' | 'heatmap';
} & ({ instant: true; range: false } | { instant: false; range: true });

type DataLink = { title: string; url: string; targetBlank: boolean };
