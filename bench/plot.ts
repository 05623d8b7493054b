import * as echarts from 'echarts';

/** A line of a chart: its values by the value of the horizontal axis. */
export interface Line {
  name: string;
  points: [x: number, value: number][];
}

/** The horizontal axis of all charts. */
export interface Axis {
  name: string;
  type: 'log' | 'value';
  min: number;
}

/** A chart. */
export interface Chart {
  /** Its subject and the unit of the values. */
  title: string;
  lines: Line[];
}

const width = 480;
const height = 320;

/** Draws charts next to each other. @returns an SVG document */
export function plot(charts: Chart[], axis: Axis): string {
  const svg = echarts.init(null, null, { renderer: 'svg', ssr: true, width: width * charts.length, height });
  const at = (n: number) => ({ left: width * n + 60, width: width - 110, top: 70, height: height - 120 });
  svg.setOption({
    animation: false,
    backgroundColor: '#ffffff',
    title: charts.map(({ title }, n) => ({ text: title, left: width * n + 8, top: 4, textStyle: { fontSize: 14 } })),
    legend: charts.map(({ lines }, n) => ({ data: lines.map(({ name }) => name), left: width * n + 8, top: 28 })),
    grid: charts.map((_, n) => at(n)),
    xAxis: charts.map((_, n) => ({
      ...axis,
      gridIndex: n,
      nameLocation: 'middle',
      nameGap: 28,
      max: 'dataMax',
    })),
    yAxis: charts.map((_, n) => ({ type: 'value', gridIndex: n, min: 0 })),
    series: charts.flatMap(({ lines }, n) =>
      lines.map(({ name, points }) => ({
        type: 'line',
        name,
        data: points,
        showSymbol: points.length < 10,
        xAxisIndex: n,
        yAxisIndex: n,
      })),
    ),
  });
  const text = svg.renderToSVGString();
  svg.dispose();
  return text;
}
