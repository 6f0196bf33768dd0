/** The bundler writes imported styles to a separate file. */
declare module '*.css';
declare module 'swagger-ui-dist/swagger-ui-bundle.js' {
  export default function SwaggerUI(options: object): void;
}
